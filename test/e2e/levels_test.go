// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// What SECURITY.md says that its levels of isolation do not hold, beside what other tests show that they do. Where one of these ways
// is closed some day, the document is to say so.

// outcomeOf runs a script in a slice, and says what a program in it came to.
func outcomeOf(t *testing.T, script string) string {
	t.Helper()
	return verdict(t, batch(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB), "exec 2>&1\n"+script+"\ntrue"))
}

// fillHere takes what it can get, and ends well where it may have too much.
func fillHere() string { return fmt.Sprintf("%s --upto %d", c.Home.Path("bin", "vgpu-fill"), openMiB) }

func TestPreloadsAloneHoldWhoKeepsThem(t *testing.T) {
	needStrict(t)
	begin(t)
	c.Isolation = "preload"
	configured(t, "")
	t.Cleanup(func() { c.Isolation = "strict" }) // before the file is written again
	for script, want := range map[string]string{fillHere(): limited, "env -i " + fillHere(): open, "unset LD_PRELOAD; " + fillHere(): open} {
		if got := outcomeOf(t, script); got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
	out := batch(t, one, inSlice, seen+"; "+openNodes())
	if out != "3000\nopen 0\nopen 1\n" {
		t.Errorf("it sees, and can open:\n%s", out)
	}
}

// ownDriver makes copies of the driver, which can be read behind its guard, and of a program that looks beside itself for one.
const ownDriver = `mkdir -p own && cd own || exit 1
	cp /run/slurm-vgpu/self/libcuda-slurm-vgpu.so libcuda.so.1 && cp /run/slurm-vgpu/self/libnvidia-ml-slurm-vgpu.so libnvidia-ml.so.1 || exit 1
	sed s,/etc/ld.so.preload,/etc/ld.so.preloaX, /lib64/ld-linux-x86-64.so.2 >ld && chmod +x ld || exit 1
	export LD_LIBRARY_PATH=$PWD
`

func TestADriverBroughtAlong(t *testing.T) {
	needStrict(t)
	begin(t)
	fill := fmt.Sprintf("./vgpu-fill --upto %d", openMiB)
	bring := ownDriver + "cp -L " + c.Home.Path("bin", "vgpu-fill") + " vgpu-fill\n"
	covered := bring + "unshare --user --map-root-user --mount sh -c 'mount --bind /dev/null /etc/ld.so.preload && " + fill + "' || " + fill
	for _, tc := range []struct{ name, config, script, want string }{
		{"and nothing else", "", bring + fill, limited},
		{"by a user namespace", "", covered, open},
		{"by a user namespace that is denied", "user_namespaces: deny\n", covered, limited},
		{"by a linker that reads no preloads", "user_namespaces: deny\n", bring + "./ld " + fill, open},
	} {
		t.Run(tc.name, func(t *testing.T) {
			configured(t, tc.config)
			if got := outcomeOf(t, tc.script); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// A job that asks for no slice has the whole node's GPUs, unless the site masks them.
func TestJobsWithoutASlice(t *testing.T) {
	needStrict(t)
	begin(t)
	for config, want := range map[string]string{"": "open 0\nopen 1\n", "without_slice: mask\n": ""} {
		t.Run(strings.TrimSpace(config), func(t *testing.T) {
			configured(t, config)
			if out := batch(t, one, "", openNodes()); out != want {
				t.Errorf("want %q, got %q", want, out)
			}
		})
	}
}
