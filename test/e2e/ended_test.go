// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// passing is Python that gives copies of the pages' mount to whoever listens, and puts what it is given over its own: no path leads to another job's
// pages, but a descriptor of a mount does.
const passing = `
import ctypes, os, socket, sys, time
call = ctypes.CDLL(None, use_errno=True).syscall
at, take, clone, recursive, empty = -100, 429, 1, 0x8000, 4 # of fcntl.h and linux/mount.h
def must(value):
    if value < 0: sys.exit(os.strerror(ctypes.get_errno()))
    return value
folders = [b"/run/slurm-vgpu/self/pages", b"/dev/slurm-vgpu/pages"]
place = sys.argv[2] + "/socket"
if sys.argv[1] == "give":
    while not os.path.exists(place): time.sleep(0.05)
    client = socket.socket(socket.AF_UNIX)
    client.connect(place)
    socket.send_fds(client, [b"x"], [must(call(428, at, folder, clone | recursive)) for folder in folders])
    client.recv(1)
else:
    server = socket.socket(socket.AF_UNIX)
    server.bind(place + ".new")
    server.listen()
    os.rename(place + ".new", place)
    client = server.accept()[0]
    _, fds, _, _ = socket.recv_fds(client, 1, 2)
    for fd, folder in zip(fds, folders): must(call(take, fd, b"", at, folder, empty))
`

// What a job had is worth nothing when it is over, to its own user neither, who keeps its pages in a namespace of a later job.
func TestAnEndedJobsPagesAreWorthNothing(t *testing.T) {
	needStrict(t)
	begin(t)
	signs := openDir(t)
	if err := os.Chmod(signs, 0o777); err != nil {
		t.Fatal(err)
	}
	executable(t, filepath.Join(signs, "passing.py"), passing)
	pass := func(way string) string { return "python3 " + signs + "/passing.py " + way + " " + signs }
	ended, release := holdingAfter(t, one, "--gres=vgpu:1 --vgpu-mem=50000 --vgpu-cores=50", "unshare --user --map-root-user --mount "+pass("give")+" &")
	awaitState(t, ended, "RUNNING")
	covered := `set -e; mount --make-rprivate /
		` + pass("take") + `
		for self in /run/slurm-vgpu/self /dev/slurm-vgpu; do mount --bind ` + runDir("jobs", ended, "steps", "batch") + `/limits $self/limits; done
		set +e
		vgpu-fill --upto 20000 | grep -c "after 20000 MiB" && touch ` + signs + `/covered
		while [ ! -e ` + signs + `/ended ]; do sleep 0.1; done
		vgpu-fill; echo COVERED`
	later := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=10", "exec 2>&1\nunshare --user --map-root-user --mount bash -c '"+covered+"'\ntrue")
	await(t, filepath.Join(signs, "covered"))
	release()
	finish(t, one, ended)
	awaitEnd(t, ended)
	if err := os.WriteFile(filepath.Join(signs, "ended"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out := finish(t, one, later)
	if !strings.Contains(out, "COVERED") || !strings.Contains(out, "NOT_PERMITTED") {
		t.Errorf("want the pages covered, and CUDA refused once their job has ended:\n%s", out)
	}
}
