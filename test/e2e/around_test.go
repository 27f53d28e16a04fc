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
