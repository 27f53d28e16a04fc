// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// adminGroup may open device files that are closed. It is in the cluster's own /etc.
const adminGroup = "vgpu-admin"

// closedFiles closes the device files of the cluster's GPUs until the test ends.
func closedFiles(t *testing.T) {
	t.Helper()
	if c.Home.InPlace() {
		t.Skip("the cluster has no /etc of its own")
	}
	devices := func(command string) string { return "vgpuctl --node n1 devices " + command }
	t.Cleanup(func() { ok(t, root, devices("open")) }) // when config.yaml is as it was
	ok(t, root, "groupadd -f "+adminGroup)
	configured(t, "device_files: closed\ndevice_group: "+adminGroup+"\n")
	ok(t, root, devices("close"))
	ok(t, one, devices("status"))
}

// theOther is a script that says which GPUs can be opened in another process's root, and as root in a user namespace.
func theOther(pid string) string {
	return strings.ReplaceAll(openNodes(), nodes(), "/proc/"+pid+"/root"+nodes()) + "; unshare -Urm sh -c 'umount -l " + nodes() + "/nvidia1 2>/dev/null; " + openNodes() + "' | sed s/^/unshared' '/"
}

func TestDeviceFilesCanBeClosed(t *testing.T) {
	needStrict(t)
	begin(t)
	closedFiles(t)
	t.Run("outside of jobs", func(t *testing.T) {
		as := fmt.Sprintf("setpriv --reuid=%d --regid=%d --groups=$(getent group %s | cut -d: -f3) ", one.UID, one.GID, adminGroup)
		for line, want := range map[string]string{openNodes(): "", as + "sh -c '" + openNodes() + "'": "open 0\nopen 1\n"} {
			u := root
			if line == openNodes() {
				u = one
			}
			if out := run(t, u, line).Stdout; out != want {
				t.Errorf("%s as %s: %q, want %q", line, u.Name, out, want)
			}
		}
		for u, want := range map[string]int{"root": gpus, one.Name: 0} {
			who := map[string]string{"root": "", one.Name: strings.Replace(as, "--groups=$(getent group "+adminGroup+" | cut -d: -f3)", "--clear-groups", 1)}[u]
			if list := run(t, root, who+"nvidia-smi -L").Stdout; strings.Count(list, "GPU ") != want {
				t.Errorf("nvidia-smi of %s: %s", u, list)
			}
		}
		if list := ok(t, root, as+"nvidia-smi -L").Stdout; strings.Count(list, "GPU ") != gpus {
			t.Errorf("nvidia-smi of the group: %s", list)
		}
		ok(t, root, "vgpuctl --node n1 audit")
		ok(t, one, "vgpuctl --node n1 status")
	})
	t.Run("in a step", func(t *testing.T) {
		out := batch(t, one, onFirstGPU(t), "exec 2>&1; nvidia-smi -L | grep -c GPU; "+openNodes()+"; unshare -Urm sh -c 'umount -l "+nodes()+"/nvidia0 "+
			nodes()+"/nvidia1 2>/dev/null; "+openNodes()+"'; stat -c %a:%t:%T "+nodes()+"/nvidia0; ls "+nodes()+"/slurm-vgpu-gpus >/dev/null; vgpu-fill")
		number := ok(t, root, "stat -c %t:%T "+nodes()+"/nvidia0").Stdout
		if !strings.HasPrefix(out, "1\nopen 0\nopen 0\n666:"+number) || !strings.Contains(out, "slurm-vgpu-gpus': Permission denied") {
			t.Errorf("want the first GPU alone:\n%s", out)
		}
		wantLimit(t, out, 3000)
	})
	t.Run("a job of whole GPUs", func(t *testing.T) {
		if out := ok(t, one, `srun -p whole --gpus=1 sh -c '`+openNodes()+`; nvidia-smi -L | grep -c GPU'`).Stdout; out != "open 0\n1\n" && out != "open 1\n1\n" {
			t.Errorf("want one GPU:\n%s", out)
		}
	})
	t.Run("a slice by shards", closedShards)
	t.Run("a descriptor that was handed on", handedOn)
	t.Run("what is reached besides", reachedBesides)
	t.Run("what was opened is closed by the next prolog", func(t *testing.T) {
		if result := run(t, root, "chmod 666 "+nodes()+"/nvidia1"); result.Code == 0 {
			t.Errorf("the driver's tools can open it: %s", result)
		}
		ok(t, root, "umount "+nodes()+"/nvidia1; chmod 666 "+nodes()+"/nvidia1")
		if status := run(t, one, "vgpuctl --node n1 devices status"); status.Code != 1 {
			t.Errorf("a file that is open: %s", status)
		}
		batch(t, one, "", "true")
		ok(t, one, "vgpuctl --node n1 devices status")
	})
}

func closedShards(t *testing.T) {
	needShards(t)
	out := ok(t, one, `srun -p shard --gres=vgpu:1 --vgpu-mem=3000 sh -c '`+openNodes()+`; nvidia-smi -L | grep -c GPU; vgpu-fill 2>&1'`).Stdout
	if !strings.HasPrefix(out, "open 0\n1\n") && !strings.HasPrefix(out, "open 1\n1\n") {
		t.Errorf("want one GPU:\n%s", out)
	}
	wantLimit(t, out, 3000)
	if out := ok(t, one, "srun -p shard sh -c '"+openNodes()+"'").Stdout; out != "" {
		t.Errorf("a job without a slice has %s", out)
	}
}

// handedOn is what closed files do not close: a job gives a process of another user, who is in no job, the descriptor of its own GPU's file,
// which stays good when the job is over. No other GPU comes with it.
func handedOn(t *testing.T) {
	dir := openDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program := func(name, text string) string {
		path := filepath.Join(dir, name)
		executable(t, path, "#!/usr/bin/env python3\nimport os, socket, sys, time\n"+text)
		return path
	}
	taker := program("taker", `
server = socket.socket(socket.AF_UNIX)
server.bind("`+dir+`/socket")
os.chmod("`+dir+`/socket", 0o777)
server.listen()
_, (fd,), _, _ = socket.recv_fds(server.accept()[0], 1, 1)
open("`+dir+`/taken", "w")
while not os.path.exists("`+dir+`/gate"): time.sleep(0.1)
for path in "/proc/self/fd/%d" % fd, "`+nodes()+`/nvidia0", "`+nodes()+`/nvidia1":
    try: os.close(os.open(path, os.O_RDWR)); print("open")
    except PermissionError: print("closed")
`)
	giver := program("giver", `
client = socket.socket(socket.AF_UNIX)
client.connect("`+dir+`/socket")
socket.send_fds(client, [b"x"], [os.open("`+nodes()+`/nvidia0", os.O_RDWR)])
while not os.path.exists("`+dir+`/taken"): time.sleep(0.1)
`)
	said := make(chan string, 1)
	go func() { said <- run(t, two, taker).String() }()
	until(t, "somebody who takes descriptors", 30*time.Second, func() error {
		_, err := os.Stat(filepath.Join(dir, "socket"))
		return err
	})
	batch(t, one, onFirstGPU(t), giver)
	if err := os.WriteFile(filepath.Join(dir, "gate"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := <-said; !strings.Contains(out, "open\nclosed\nclosed\n") {
		t.Errorf("after the job, by the descriptor and by the paths: %s", out)
	}
}

// reachedBesides are the ways past the step: the user's other processes, and those that slurmd and slurmstepd start for him.
func reachedBesides(t *testing.T) {
	plain, release := holding(t, one, "")
	var pid string
	until(t, "a job without a slice", 60*time.Second, func() error {
		found := run(t, root, "pgrep -f 'slurm_script' -u "+one.Name)
		pid, _, _ = strings.Cut(found.Stdout, "\n")
		if pid == "" {
			return fmt.Errorf("it is %s", state(t, plain))
		}
		return nil
	})
	ok(t, one, "ls /proc/"+pid+"/root"+nodes()) // it can be gone through
	out := batch(t, one, onFirstGPU(t), theOther(pid))
	if out != "unshared open 0\n" {
		t.Errorf("from a slice of the first GPU, through a job without: %q", out)
	}
	out = batch(t, one, onFirstGPU(t), "sleep 1000 & "+theOther("$!")+"; kill $!")
	if out != "open 0\nunshared open 0\n" {
		t.Errorf("through a process of its own, which shows that the way is one: %q", out)
	}
	release()
	finish(t, one, plain)
	login := strings.TrimSpace(ok(t, one, "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!").Stdout)
	out = batch(t, one, onFirstGPU(t), "ls /proc/"+login+"/root"+nodes()+" | grep -c nvidia1; "+theOther(login))
	ok(t, one, "kill "+login)
	if out != "1\nunshared open 0\n" {
		t.Errorf("from a slice of the first GPU, through a process of a login: %q", out)
	}

	found := filepath.Join(one.Home, "around.out")
	script := filepath.Join(one.Home, "around.sh")
	executable(t, script, lookAround("around.out"))
	_ = os.Remove(found)
	ok(t, one, "srun --task-epilog="+script+" --gres=vgpu:1 --vgpu-mem=3000 true")
	wantHeld(t, found, 3000)

	profile, seenThere := filepath.Join(one.Home, ".bash_profile"), filepath.Join(one.Home, "profile.out")
	executable(t, profile, "{ "+openNodes()+"; echo ran as $(id -un); } >>"+seenThere+" 2>&1\n")
	t.Cleanup(func() { _ = os.Remove(profile) })
	batch(t, one, "--export=NONE --gres=vgpu:1 --vgpu-mem=3000", "true")
	text, err := os.ReadFile(seenThere)
	if want := "ran as " + one.Name + "\n"; err != nil || strings.Trim(strings.ReplaceAll(string(text), want, ""), "\n") != "" || !strings.Contains(string(text), want) {
		t.Errorf("a login shell of slurmd's: %v, %s", err, text)
	}
}

func TestContainersWithClosedDeviceFiles(t *testing.T) {
	needStrict(t)
	begin(t)
	closedFiles(t)
	for _, runtime := range []struct {
		program string
		command func() string
	}{
		{"ch-run", func() string { return "ch-run " + given("-b %s:%s ") + image(t, one) + " --" }},
		{"bwrap", func() string {
			return "bwrap --unshare-user --bind " + image(t, one) + " / --proc /proc " + given("--dev-bind %s %s ") + "--dev-bind /dev /dev"
		}},
		{"podman", func() string {
			command := podman(t, one)
			configurePodman(t)
			return command + "run --rm --log-driver passthrough --cgroups=disabled --network none " + given("-v %s:%s:rbind ") + "--rootfs " + image(t, one)
		}},
	} {
		t.Run(runtime.program, func(t *testing.T) {
			if _, err := exec.LookPath(runtime.program); err != nil {
				t.Skip(runtime.program + " is not installed here")
			}
			command := runtime.command()
			out := batch(t, one, onFirstGPU(t), "exec 2>&1\n"+command+" "+fillInside+"\n"+
				command+` /bin/sh -c 'for i in 0 1; do if (: </gpus/nvidia$i) 2>/dev/null; then echo open $i; fi; done'`)
			if got := verdict(t, out); got != limited || !strings.Contains(out, "open 0\n") || strings.Contains(out, "open 1\n") {
				t.Errorf("%s, want %s on the first GPU:\n%s", got, limited, out)
			}
		})
	}
}
