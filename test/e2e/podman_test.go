// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// podman is the start of a command line of the user's. Its files are in his home, and its processes in a folder as logind
// makes it. Containers write to the job's output themselves (--log-driver passthrough): what Podman 4.3 passes on of one that ends at once
// is lost now and then.
func podman(t *testing.T, u cluster.User) string {
	t.Helper()
	need(t, u, "podman", "XDG_RUNTIME_DIR="+c.RuntimeDir(u)+" podman --version")
	need(t, u, "crun", "crun --version | head -1")
	cgroup2(t)
	runtimeDir := c.RuntimeDir(u)
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		ok(t, root, fmt.Sprintf("grep -qs '^%[1]s:' %[2]s || echo %[1]s:%[3]d:65536 >>%[2]s", u.Name, file, 10000000+65536*u.UID))
	}
	t.Cleanup(func() { // the process that keeps Podman's namespace
		data, err := os.ReadFile(filepath.Join(runtimeDir, "libpod/tmp/pause.pid"))
		if pid, _ := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	return "XDG_RUNTIME_DIR=" + runtimeDir + " podman --root " + u.Home + "/podman --runroot " + runtimeDir + "/run --storage-driver vfs --runtime crun --cgroup-manager cgroupfs --events-backend none "
}

// cgroup2 gives the cluster what crun asks for, until the test ends: Slurm's nodes have what it covers.
func cgroup2(t *testing.T) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		return
	}
	if err := unix.Mount("none", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
		t.Skipf("crun wants cgroup v2: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/sys/fs/cgroup", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// configurePodman puts the file for containers.conf where root keeps it.
func configurePodman(t *testing.T) {
	t.Helper()
	ok(t, root, "install -D -m 644 "+filepath.Join(c.Source, "packaging/containers/podman.conf")+" /etc/containers/containers.conf.d/50-slurm-vgpu.conf")
}

// Podman joins the mount namespace of its user's first command on the node, if it finds the process that keeps it.
func TestPodmanOfAStepIsNoOtherSteps(t *testing.T) {
	command := podman(t, one)
	begin(t)
	folder := image(t, one)
	configurePodman(t)
	run := command + "run --rm --log-driver passthrough --cgroups=disabled --network none " + given("-v %s:%s:rbind ") + "--rootfs " + folder + " " + fillInside
	slice := fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB)
	pause := filepath.Join(c.RuntimeDir(one), "libpod/tmp/pause.pid")

	ok(t, one, command+"unshare true")
	if data, err := os.ReadFile(pause); err != nil || len(data) == 0 {
		t.Fatalf("Podman keeps no namespace outside: %q, %v", data, err)
	}
	if got := verdict(t, batch(t, one, slice, "exec 2>&1\n"+run)); got != limited {
		t.Errorf("after a login's Podman: %s", got)
	}
	// In a job of more memory, which goes on.
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=7000", command+"unshare true; touch started; until [ -e end ]; do sleep 0.1; done; rm -f end started")
	until(t, "the other job's Podman", 30*time.Second, func() error {
		_, err := os.Stat(filepath.Join(one.Home, "started"))
		return err
	})
	if got := verdict(t, batch(t, one, slice, "exec 2>&1\n"+run)); got != limited {
		t.Errorf("beside another job's Podman: %s", got)
	}
	ok(t, one, "touch end")
	finish(t, one, job)
}

func TestPodman(t *testing.T) {
	command := podman(t, one)
	begin(t)
	folder := image(t, one)
	configurePodman(t)
	run := "run --rm --log-driver passthrough --cgroups=disabled --network none " + given("-v %s:%s:rbind ")
	rootfs := "--rootfs " + folder
	bare := "CONTAINERS_CONF=/dev/null " + command + run
	try(t, one, "touch empty", []attempt{
		{"configured", command + run + rootfs, "", limited},
		{"an own configuration", bare + rootfs, "", noCUDA},
		{"the folder by hand", bare + "-v /run/slurm-vgpu/self:/run/slurm-vgpu/self " + rootfs, "", limited},
		{"an own file over the preload", command + run + "-v ./empty:/etc/ld.so.preload " + rootfs, "", limited},
		{"an own folder over ours", "mkdir -p nothing; " + command + run + "-v ./nothing:/run/slurm-vgpu/self " + rootfs, "", noCUDA},
		{"its root takes mounts away", command + run + "--cap-add all --security-opt seccomp=unconfined " + rootfs, uncover, noCUDA},
		{"read-only", command + run + "--read-only " + rootfs, "", limited},
		{"ids kept", command + run + "--userns=keep-id " + rootfs, "", limited},
		{"another user inside", command + run + "--user 1234 " + rootfs, "", noCUDA},
	})
}
