// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

func TestANameMakesNobodyTheDriver(t *testing.T) {
	needStrict(t)
	begin(t)
	libraries := "LD_LIBRARY_PATH=" + c.Home.Path("sim")
	fill := c.Home.Path("bin", "vgpu-fill")
	for _, tc := range []struct{ name, script string }{
		{"argv[0]", "exec -a libnvidia-x " + fill},
		{"argv[0] in a folder", "exec -a /usr/lib/libcuda.so.1 " + fill},
		{"own file", "cp " + fill + " libcuda.so.prog; " + libraries + " ./libcuda.so.prog"},
		{"link", "ln -s " + fill + " libnvidia-link; " + libraries + " ./libnvidia-link"},
		{"root in a namespace of its own", "cp " + fill + " libcuda.so.root; unshare -r true && " + libraries + " unshare -r ./libcuda.so.root || vgpu-fill"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", "exec 2>&1\n"+tc.script)
			if tc.name == "root in a namespace of its own" && strings.Contains(out, "CUDA_ERROR_NOT_PERMITTED") {
				return
			}
			wantLimit(t, out, 3000)
		})
	}
}

func TestClaimsThatAreCutRefuseTheirOwner(t *testing.T) {
	needStrict(t)
	begin(t)
	for _, tc := range []struct{ name, script string }{
		{"cut", "truncate -s 0 "},
		{"open to others", "chmod 666 "},
		{"hidden", "chmod 600 "},
		{"garbled", "head -c 100 /dev/urandom | dd conv=notrunc status=none of="},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := batch(t, one, "--gres=vgpu:1", "exec 2>&1\n"+tc.script+runDir("turns")+"/$SLURM_JOB_ID/claims\nvgpu-fill --upto 64 || echo \"code $?\"")
			if !strings.Contains(out, "the job's claims cannot be used") || !strings.Contains(out, "CUDA_ERROR_NOT_PERMITTED") || !strings.Contains(out, "code 1") {
				t.Errorf("not refused: %s", out)
			}
		})
	}
}
