// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// What comes of a program in a container that takes all that it can get.
const (
	limited = "limited"
	noCUDA  = "no CUDA"
	open    = "UNLIMITED"
)

// containerMiB is the slice in these tests; a program that gets openMiB has no limit.
const (
	containerMiB = 3000
	openMiB      = 8000
)

// fillInside is the program, which ends well where it may have too much.
var fillInside = fmt.Sprintf("/bin/vgpu-fill --upto %d", openMiB)

var taken = regexp.MustCompile(`after (\d+) MiB`)

func verdict(t *testing.T, out string) string {
	t.Helper()
	switch match := taken.FindStringSubmatch(out); {
	case match != nil && strings.Contains(out, "CUDA_ERROR_OUT_OF_MEMORY"):
		wantLimit(t, out, containerMiB)
		return limited
	case match != nil:
		return open
	case strings.Contains(out, "libslurm-vgpu.so: cannot open shared object file"), strings.Contains(out, "CUDA_ERROR_NOT_PERMITTED"),
		strings.Contains(out, "vgpu: the container is another job's, or has neither this one's /dev nor its /run/slurm-vgpu/self (enroot: /etc/enroot/mounts.d/50-slurm-vgpu.fstab)"):
		return noCUDA
	}
	t.Fatalf("neither a program with limits nor one without CUDA:\n%s", out)
	return ""
}

// attempt is one way to run a program in a container.
type attempt struct {
	name    string
	command string // what goes before the program
	program string // "" is fillInside
	want    string
}

func try(t *testing.T, u cluster.User, before string, attempts []attempt) {
	t.Helper()
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			program := a.program
			if program == "" {
				program = fillInside
			}
			out := batch(t, u, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB), "exec 2>&1\n"+before+"\n"+a.command+" "+program+"\ntrue")
			if got := verdict(t, out); got != a.want {
				t.Errorf("%s, want %s:\n%s", got, a.want, out)
			}
		})
	}
	// Without slurm-vgpu the same programs have the whole GPU, so the limits above are its work.
	out := batch(t, u, "", "exec 2>&1\n"+before+"\n"+attempts[0].command+" "+fillInside+"\ntrue")
	if got := verdict(t, out); got != open {
		t.Errorf("in a job without slices: %s:\n%s", got, out)
	}
}

// need skips where a runtime is not to be had, and says which one was tried.
func need(t *testing.T, u cluster.User, program, version string) {
	t.Helper()
	needStrict(t)
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(program + " is not installed here; test/setup.sh gets it where the system has a package")
	}
	t.Logf("%s: %s", program, strings.TrimSpace(run(t, u, version).Output()))
}

// The driver in an image is where the dynamic linker looks, as runtimes bind it there.
const libraryDir = "/lib/x86_64-linux-gnu"

func driverFile(name string) string { return c.Home.Path("sim", name) }

// image makes a root file system of a user's with a shell, the C library and the programs, and what a runtime needs to
// mount something on.
func image(t *testing.T, u cluster.User) string {
	t.Helper()
	folder := filepath.Join(u.Home, "image")
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	made := folder + ".new"
	for _, dir := range []string{"bin", "dev", "proc", "sys", "tmp", "run/slurm-vgpu/self", "etc", "gpus", "root", "home", "lib64", libraryDir, "mnt"} {
		if err := os.MkdirAll(filepath.Join(made, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/group": "root:x:0:\n", "etc/simgpu": "/gpus\n", "gpus/state": "", "gpus/simgpu.conf": "",
		"etc/hosts": "", "etc/resolv.conf": "", "etc/machine-id": "", "etc/ld.so.preload": "", libraryDir + "/libcuda.so.1": "", libraryDir + "/libnvidia-ml.so.1": ""} {
		if err := os.WriteFile(filepath.Join(made, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	copies := map[string]string{"/bin/busybox": "bin/busybox", "/lib64/ld-linux-x86-64.so.2": "lib64/ld-linux-x86-64.so.2"}
	for _, program := range []string{"vgpu-fill", "vgpu-busy", "nvidia-smi"} {
		copies[driverFile(program)] = "bin/" + program
	}
	for _, library := range []string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"} {
		copies[filepath.Join(libraryDir, library)] = filepath.Join(libraryDir, library)
	}
	for from, to := range copies {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Skipf("no image: %v", err)
		}
		if err := os.WriteFile(filepath.Join(made, to), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, applet := range []string{"sh", "cat", "umount", "mount", "ls", "test", "wc", "sleep", "id", "touch"} {
		if err := os.Symlink("busybox", filepath.Join(made, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	ok(t, root, fmt.Sprintf("chown -hR %d:%d %s && mv %s %s", u.UID, u.GID, made, made, folder))
	return folder
}

// given is the driver and its GPUs in the form in which a runtime takes what is to be mounted: option, source, target.
func given(form string) string {
	var b strings.Builder
	for _, pair := range [][2]string{{driverFile("libcuda.so.1"), libraryDir + "/libcuda.so.1"},
		{driverFile("libnvidia-ml.so.1"), libraryDir + "/libnvidia-ml.so.1"}, {c.Home.Path("sim", "simgpu.d"), "/gpus"}} {
		fmt.Fprintf(&b, form, pair[0], pair[1])
	}
	return b.String()
}

// uncover tries to take away, as the container's root, all that stands in the way, and then runs the program.
var uncover = `/bin/sh -c "umount /etc/ld.so.preload; umount -l /dev/slurm-vgpu; umount -l /run/slurm-vgpu/self; ` + fillInside + `"`

func TestBubblewrap(t *testing.T) {
	need(t, one, "bwrap", "bwrap --version")
	begin(t)
	folder := image(t, one)
	bare := "bwrap --unshare-user --bind " + folder + " / --proc /proc " + given("--dev-bind %s %s ")
	self := "--bind /run/slurm-vgpu/self /run/slurm-vgpu/self "
	try(t, one, "touch empty", []attempt{
		{"nothing but /dev", bare + "--dev-bind /dev /dev", "", limited},
		{"a /dev of its own", bare + "--dev /dev", "", noCUDA},
		{"a /dev of its own and the folder", bare + "--dev /dev " + self, "", limited},
		{"the preload as well", bare + "--dev /dev " + self + "--ro-bind /etc/ld.so.preload /etc/ld.so.preload", "", limited},
		{"an own file over the preload", bare + "--dev-bind /dev /dev --bind empty /etc/ld.so.preload", "", limited},
		{"its root takes mounts away", bare + "--dev-bind /dev /dev " + self + "--uid 0 --gid 0 --cap-add ALL", uncover, limited},
		{"no proc", strings.Replace(bare, "--proc /proc", "", 1) + "--dev-bind /dev /dev", "", noCUDA},
		{"processes of its own", bare + "--unshare-pid --dev-bind /dev /dev", "", limited},
	})
}

func TestCharliecloud(t *testing.T) {
	need(t, one, "ch-run", "ch-run --version")
	begin(t)
	folder := image(t, one)
	bare := "ch-run " + given("-b %s:%s ")
	try(t, one, "touch empty", []attempt{
		{"nothing configured", bare + folder + " --", "", limited},
		{"configured", bare + "-b /run/slurm-vgpu/self -b /etc/ld.so.preload " + folder + " --", "", limited},
		{"an own file over the preload", bare + "-b /etc/ld.so.preload -b ./empty:/etc/ld.so.preload " + folder + " --", "", limited},
		{"an own folder over ours", "mkdir -p nothing; " + bare + "-b ./nothing:/dev/slurm-vgpu " + folder + " --", "", noCUDA},
		{"root inside", bare + "-u 0 -g 0 " + folder + " --", uncover, limited},
		{"another user inside", bare + "-u 1234 -g 1234 " + folder + " --", "", limited},
		{"writable", bare + "-w " + folder + " --", "", limited},
	})
}

// runc 1.1 gives what a bundle binds read-only the flags that the bundle names and no other. In a user namespace the kernel refuses to take
// away any that are there: what stands over the driver, and the preload, have none that they do not need.
func TestBundlesNeedNameNoFlags(t *testing.T) {
	needStrict(t)
	begin(t)
	files := "$(readlink -f " + driverFile("libcuda.so.1") + ") $(readlink -f " + driverFile("libnvidia-ml.so.1") + ") /etc/ld.so.preload"
	program := filepath.Join(one.Home, "bundle.py")
	executable(t, program, `#!/usr/bin/env python3
import ctypes, os, sys
bind, readonly, remount = 0x1000, 1, 0x20 # of sys/mount.h; mount(8) would keep what is there
c = ctypes.CDLL(None, use_errno=True)
open("on", "w").close()
for flags in bind, bind | readonly | remount:
    if c.mount(sys.argv[1].encode(), b"on", None, flags, None) != 0:
        sys.exit("%s: flags %#x: %s" % (sys.argv[1], flags, os.strerror(ctypes.get_errno())))
print("mounted")
`)
	out := batch(t, one, "--gres=vgpu:1", "for file in "+files+"; do unshare -Urm ./bundle.py $file 2>&1; done")
	if out != strings.Repeat("mounted\n", 3) {
		t.Errorf("want three read-only mounts:\n%s", out)
	}
}

// One command says what becomes of each runtime that is installed.
func TestVgpuGresTriesTheRuntimes(t *testing.T) {
	need(t, one, "bwrap", "bwrap --version")
	podmanEnv, _, _ := strings.Cut(podman(t, one), " ")
	begin(t)
	check := "exec 2>&1; SIMGPU_DIR=" + c.Home.Path("sim", "simgpu.d") + " STORAGE_DRIVER=vfs " + podmanEnv + " vgpu-gres --config " + c.ConfigPath() + " --node n1 check --containers; echo code $?"
	ok(t, root, "rm -f /etc/containers/containers.conf.d/50-slurm-vgpu.conf")
	out := batch(t, one, "--gres=vgpu:1", check)
	for _, want := range []string{`(?m)^bwrap \(bubblewrap [0-9.]+\): limited$`, `(?m)^ch-run \([0-9.]+\): limited$`, `(?m)^podman \(podman version [0-9.]+\): closed: libslurm-vgpu.so: .* -> put `, `code 0`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("want %s:\n%s", want, out)
		}
	}
	configurePodman(t)
	if out := batch(t, one, "--gres=vgpu:1", check); !regexp.MustCompile(`(?m)^podman \(.*\): limited$`).MatchString(out) {
		t.Errorf("configured:\n%s", out)
	}
	// Nothing of enroot's is to be had here: a script stands in for it that finds the image as enroot does, and the program in it.
	ok(t, one, "mkdir -p enroot")
	executable(t, filepath.Join(one.Home, "enroot", "enroot"), `#!/bin/sh
[ "$1" = version ] && echo 4.1.2 && exit
[ "$1" = start ] && shift || exit 2
while [ "$1" = --mount ]; do shift 2; done
image=$ENROOT_DATA_PATH/$1; shift
mkdir -p "$ENROOT_RUNTIME_PATH" "$ENROOT_CACHE_PATH" && program=$1 && shift && exec "$image$program" "$@"
`)
	if out := batch(t, one, "--gres=vgpu:1", "PATH=$HOME/enroot:$PATH\n"+check); !strings.Contains(out, "enroot (4.1.2): limited\n") {
		t.Errorf("enroot:\n%s", out)
	}
	// Without a guard it says so, and a runtime in which that is so is a finding.
	bare := ok(t, one, "vgpu-gres probe-cuda").Stdout
	if !strings.Contains(bare, "OPEN|libcuda.so.1 is loaded without libslurm-vgpu.so") {
		t.Errorf("outside of any step: %s", bare)
	}
	ok(t, one, "mkdir -p fake")
	executable(t, filepath.Join(one.Home, "fake", "apptainer"), "#!/bin/sh\ncat <<END\n"+bare+"END\n")
	if out := batch(t, one, "--gres=vgpu:1", "PATH=$HOME/fake:$PATH\n"+check); !strings.Contains(out, "): OPEN: ") || !strings.Contains(out, "code 1") {
		t.Errorf("a runtime that is open:\n%s", out)
	}
	if out := batch(t, one, "", check); !strings.Contains(out, "in a step") || !strings.Contains(out, "code 1") {
		t.Errorf("outside of a step:\n%s", out)
	}
}
