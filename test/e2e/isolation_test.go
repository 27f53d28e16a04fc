// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func needStrict(t *testing.T) {
	t.Helper()
	if c.Isolation != "strict" {
		t.Skip("mount namespaces are forbidden here, so isolation is preload, which promises none of this")
	}
}

func TestAJobCannotLeaveItsLimit(t *testing.T) {
	needStrict(t)
	begin(t)
	fill := c.Home.Path("bin", "vgpu-fill")
	for _, tc := range []struct{ name, script string }{
		{"env -i", "env -i " + fill},
		{"unset LD_PRELOAD", "unset LD_PRELOAD; vgpu-fill"},
		{"own LD_PRELOAD", "LD_PRELOAD=/lib/x86_64-linux-gnu/libm.so.6 vgpu-fill"},
		{"the C library in front", "LD_PRELOAD=/lib/x86_64-linux-gnu/libc.so.6 vgpu-fill"},
		{"the driver in front", "LD_PRELOAD=libcuda.so.1:libc.so.6 LD_LIBRARY_PATH=" + c.Home.Path("sim") + " vgpu-fill"},
		{"the linker as a program", "/lib64/ld-linux-x86-64.so.2 --preload libc.so.6 " + fill},
		{"own LD_LIBRARY_PATH", "LD_LIBRARY_PATH=/tmp vgpu-fill"},
		{"forged step folder", "mkdir -p forged; head -c 4096 /dev/zero > forged/limits; VGPU_STEP_DIR=$PWD/forged vgpu-fill"},
		{"every GPU visible", "CUDA_VISIBLE_DEVICES=0,1 vgpu-fill"},
		{"new session", "setsid --wait vgpu-fill"},
		{"umount", "umount /etc/ld.so.preload; umount -l /run/slurm-vgpu/self; vgpu-fill"},
		{"own ld.so.preload", "echo > /etc/ld.so.preload; rm -f /etc/ld.so.preload; vgpu-fill"},
		{"own limits", "chmod u+w /run/slurm-vgpu/self/limits; echo > /run/slurm-vgpu/self/limits; vgpu-fill"},
		{"a linker that reads no preloads", "sed s,/etc/ld.so.preload,/etc/ld.so.preloaX, /lib64/ld-linux-x86-64.so.2 >ld; chmod +x ld; ./ld " + fill},
		{"vmm", "vgpu-fill --api vmm"},
		{"async", "vgpu-fill --api async"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", "exec 2>&1\n"+tc.script)
			wantLimit(t, out, 3000)
		})
	}
}

// In a user namespace of his own a user covers ld.so.preload. The driver is behind its guard there as well, and
// root's files are still root's, whatever their owners look like.
func TestAUserNamespaceChangesNoLimit(t *testing.T) {
	needStrict(t)
	begin(t)
	covered := `mount --bind /dev/null /etc/ld.so.preload; test ! -s /etc/ld.so.preload || echo NOT COVERED
		umount /run/slurm-vgpu/self/libcuda-slurm-vgpu.so && echo THE DRIVER IS BARE; vgpu-fill`
	for _, tc := range []struct{ name, script string }{
		{"the user is root", "unshare --user --map-root-user --mount sh -c '" + covered + "'"},
		{"the user is himself", "unshare --user --map-current-user --mount vgpu-fill"},
		{"the user is nobody", "unshare --user vgpu-fill"},
		{"one within another", "unshare --user --map-root-user unshare --user --map-root-user --mount sh -c '" + covered + "'"},
		{"processes of its own", "unshare --user --map-root-user --mount --pid --fork --mount-proc vgpu-fill"},
		{"a proc of his own", "unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /proc; vgpu-fill; echo $?'"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", "exec 2>&1\n"+tc.script+"\ntrue")
			if strings.Contains(out, "NOT COVERED") || strings.Contains(out, "BARE") {
				t.Errorf("it is another case:\n%s", out)
			}
			if !strings.Contains(out, "NOT_PERMITTED") || tc.name != "a proc of his own" {
				wantLimit(t, out, 3000)
			}
		})
	}
}

// Where ids say nothing, another user's page is one all the same: it names the ledger, which he alone may write.
func TestAnotherUsersLimitsAreNotBelieved(t *testing.T) {
	needStrict(t)
	begin(t)
	other, release := holding(t, two, "--gres=vgpu:1 --vgpu-mem=50000")
	defer release()
	awaitState(t, other, "RUNNING")
	covered := `set -e; self=/run/slurm-vgpu/self
		mkdir was; mount --rbind $self was
		mount --rbind ` + runDir("jobs", other, "steps", "batch") + ` $self
		for f in was/*.so; do mount --bind $f $self/${f#was/}; done
		mount -t tmpfs none $self/pages
		for f in ledger groups; do
			cp was/pages/$f $self/pages/$f
			perl -e "print pack q(V), ` + other + `" | dd of=$self/pages/$f bs=1 seek=16 conv=notrunc status=none
		done
		echo COVERED; `
	for _, tc := range []struct{ name, fill string }{
		{"the user is root", "vgpu-fill"},
		{"the user is himself", "unshare --user --map-user=" + strconv.Itoa(int(one.UID)) + " vgpu-fill"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", "exec 2>&1; cd $(mktemp -d)\nunshare --user --map-root-user --mount bash -c '"+covered+tc.fill+"'\ntrue")
			if !strings.Contains(out, "COVERED") || !strings.Contains(out, "NOT_PERMITTED") {
				t.Errorf("want the page covered and CUDA refused:\n%s", out)
			}
		})
	}
}

// configured puts more into config.yaml until the test ends.
func configured(t *testing.T, lines string) {
	t.Helper()
	t.Cleanup(func() {
		c.ExtraConfig = ""
		if err := c.WriteConfig(); err != nil {
			t.Error(err)
		}
	})
	c.ExtraConfig = lines
	if err := c.WriteConfig(); err != nil {
		t.Fatal(err)
	}
}

// What no slice could count is not there; who looks for it is told why, and CUDA goes on.
func TestOtherWaysToTheGPUAreClosed(t *testing.T) {
	needStrict(t)
	begin(t)
	const script = "exec 2>&1\nLD_PRELOAD=libnvidia-opencl.so.1 vgpu-fill"
	told := "OpenCL, Vulkan and OpenGL on the GPU are closed in a slice"
	out := batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", script)
	if !strings.Contains(out, told) {
		t.Errorf("want %q:\n%s", told, out)
	}
	wantLimit(t, out, 3000)
	configured(t, "other_apis: open\n")
	if out := batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", script); strings.Contains(out, told) || strings.Contains(out, "cannot be preloaded") {
		t.Errorf("open, and yet:\n%s", out)
	}
}

func TestManagedMemoryCounts(t *testing.T) {
	begin(t)
	out := batch(t, one, "--gres=vgpu:1 --vgpu-mem=6000", `exec 2>&1
		vgpu-fill --api managed --upto 2000 --hold-until gone > first &
		until grep -qs "after 2000 MiB" first; do sleep 0.1; done
		vgpu-fill --api managed
		touch gone; wait; rm gone`)
	if got := took(t, out); got > 4000 {
		t.Errorf("beside 2000 MiB another %d MiB of 6000: %s", got, out)
	}
}

func TestOtherGPUsAreMasked(t *testing.T) {
	needStrict(t)
	begin(t)
	nodes := c.Home.Path("sim", "simgpu.d")
	numbers := ok(t, root, "stat -c %t:%T "+nodes+"/nvidia0 "+nodes+"/nvidia1").Stdout
	out := batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", `exec 2>&1
		nvidia-smi -L | wc -l
		for i in 0 1; do if (: < `+nodes+`/nvidia$i); then echo open; else echo closed; fi; done
		for i in 0 1; do stat -c %t:%T `+nodes+`/nvidia$i; done`)
	if !strings.HasPrefix(out, "1\n") || strings.Count(out, "open\n") != 1 || strings.Count(out, "closed\n") != 1 || !strings.HasSuffix(out, numbers) {
		t.Errorf("want one GPU listed, one node open and one closed, both looking as they are:\n%s", out)
	}
	// The host is not affected.
	if list := run(t, root, "nvidia-smi -L").Stdout; strings.Count(list, "GPU ") != gpus {
		t.Errorf("outside of the job: %s", list)
	}
	for _, node := range []string{"nvidia0", "nvidia1"} {
		file, err := os.Open(nodes + "/" + node)
		if err != nil {
			t.Error(err)
			continue
		}
		file.Close()
	}
}

func TestAJobWithoutVGPUIsUntouched(t *testing.T) {
	begin(t)
	out := batch(t, one, "", `env | grep -E '^(VGPU_(STEP|FAIL)|LD_PRELOAD|CUDA_VISIBLE)'
		grep -c libslurm-vgpu /proc/self/maps
		cat /etc/ld.so.preload 2>/dev/null
		srun sh -c 'grep -c libslurm-vgpu /proc/self/maps; ls -A /run/slurm-vgpu/self 2>/dev/null | wc -l'
		ls `+runDir("jobs"))
	lines := strings.Fields(out)
	if len(lines) != 4 || lines[0] != "0" || lines[1] != "0" || lines[2] != "0" || !strings.HasSuffix(lines[3], ".none") {
		t.Errorf("a job without vgpu sees:\n%s", out)
	}
}

func TestTheHostIsUntouchedByAJob(t *testing.T) {
	needStrict(t)
	begin(t)
	job, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000")
	slicesOf(t, job)
	preload, err := os.ReadFile("/etc/ld.so.preload")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if len(preload) > 0 {
		t.Errorf("/etc/ld.so.preload outside of the job: %s", preload)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), "slurm-vgpu/self") || strings.Contains(string(mounts), "ld.so.preload") {
		t.Errorf("mounts of the job are seen outside of it:\n%s", mounts)
	}
	release()
	finish(t, one, job)
}
