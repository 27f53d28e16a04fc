// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What slurmstepd does for a user outside of his tasks: it opens his files and runs his scripts.

// nodes is the folder of the GPUs' device files.
func nodes() string { return c.Home.Path("sim", "simgpu.d") }

// lookAround is a script that says, in a file of its user's home, what it can have of the node.
func lookAround(name string) string {
	return `#!/bin/bash
		exec >>$HOME/` + name + ` 2>&1
		unset CUDA_VISIBLE_DEVICES
		for i in 0 1; do if (exec 3<>` + nodes() + `/nvidia$i); then echo open; else echo closed; fi; done
		` + c.Home.Path("bin", "vgpu-fill") + ` --upto 20000
		echo end
`
}

// wantHeld reads what lookAround wrote.
func wantHeld(t *testing.T, path string, limitMiB int) {
	t.Helper()
	var out string
	until(t, "the end of a script", 30*time.Second, func() error {
		data, err := os.ReadFile(path)
		out = string(data)
		if err == nil && !strings.Contains(out, "end\n") {
			err = fmt.Errorf("it wrote %q", out)
		}
		return err
	})
	// Every run of it, and there may be several, finds one of each.
	if open, closed := strings.Count(out, "open\n"), strings.Count(out, "closed\n"); closed == 0 || open != closed {
		t.Errorf("want one GPU open and one closed:\n%s", out)
	}
	wantLimit(t, out, limitMiB)
}

// executable makes a script of the user's.
func executable(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestScriptsOfAUserAreHeld(t *testing.T) {
	needStrict(t)
	begin(t)
	script := filepath.Join(one.Home, "around.sh")
	found := filepath.Join(one.Home, "around.out")
	executable(t, script, lookAround("around.out"))
	later := filepath.Join(one.Home, "later.sh")
	executable(t, later, "#!/bin/bash\nsetsid "+script+" &\n")
	for _, tc := range []struct{ name, line string }{
		{"task epilog", "srun --task-epilog=" + script + " --gres=vgpu:1 --vgpu-mem=3000 true"},
		{"task prolog", "srun --task-prolog=" + script + " --gres=vgpu:1 --vgpu-mem=3000 true"},
		{"by variable", "SLURM_TASK_EPILOG=" + script + " srun --gres=vgpu:1 --vgpu-mem=3000 true"},
		{"in a job", "salloc --gres=vgpu:1 --vgpu-mem=3000 srun --task-epilog=" + script + " true"},
		{"what the epilog leaves", "srun -n2 --task-epilog=" + later + ` --gres=vgpu:1 --vgpu-mem=3000 bash -c '[ $SLURM_PROCID = 0 ] || until grep -qs end ` + found + `; do sleep 0.1; done'`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_ = os.Remove(found)
			ok(t, one, tc.line)
			wantHeld(t, found, 3000)
		})
	}
}

// onFirstGPU asks for a slice of the GPU whose device file is nvidia0.
func onFirstGPU(t *testing.T) string {
	t.Helper()
	uuids := strings.Fields(ok(t, root, "nvidia-smi --query-gpu=uuid --format=csv,noheader").Stdout)
	return "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-uuid=" + uuids[0]
}

// awaitEnd waits until a job is over, however it ended.
func awaitEnd(t *testing.T, job string) {
	t.Helper()
	until(t, "the end of job "+job, 60*time.Second, func() error {
		if now := state(t, job); now == "PENDING" || now == "RUNNING" || now == "COMPLETING" {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
}

func TestFilesOfAUserAreNoDoors(t *testing.T) {
	needStrict(t)
	begin(t)
	for _, tc := range []struct{ name, options, door string }{
		{"a folder as input", "--input=" + nodes(), "/proc/self/fd/0/nvidia1"},
		{"a device as input", "--input=" + nodes() + "/nvidia1", "/proc/self/fd/0"},
		{"a device as error", "--open-mode=append --error=" + nodes() + "/nvidia1", "/proc/self/fd/2"},
		{"a device by name", "", nodes() + "/nvidia1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			job := submit(t, one, onFirstGPU(t)+" --output=door.out "+tc.options,
				"echo began; if (exec 3<>"+tc.door+"); then echo open; else echo closed; fi")
			awaitEnd(t, job)
			found := filepath.Join(one.Home, "door.out")
			out, _ := os.ReadFile(found) // not there when the job's files could not be opened
			_ = os.Remove(found)
			if strings.Contains(string(out), "open") {
				t.Errorf("the other GPU can be opened:\n%s", out)
			}
		})
	}
}

// reconfigured restarts the cluster with more lines in slurm.conf, and as it was when the test ends.
func reconfigured(t *testing.T, lines string) {
	t.Helper()
	path := c.Home.Path("etc", "slurm.conf")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	restart := func(conf []byte) {
		settle(t)
		if err := os.WriteFile(path, conf, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, name := range append([]string{"slurmctld"}, c.Nodes...) {
			if err := c.StopDaemon(name, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range append([]string{"slurmctld"}, c.Nodes...) {
			if err := c.StartDaemon(name); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.AwaitIdle(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { restart(before) })
	restart(append(before, lines...))
}

// pinToKeepNamespaces binds a slurmd to a CPU on which a new mount namespace can be kept as a
// file. Linux 6.18 numbers namespaces by CPU and refuses where the new one's number is not above that
// of the namespace in which the file is, whoever asks: unshare(1) as well as job_container/tmpfs.
func pinToKeepNamespaces(t *testing.T, node string) {
	t.Helper()
	dir := c.Home.Path("mnt", "namespaces")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for cpu := range runtime.NumCPU() {
		try := fmt.Sprintf("taskset -c %d bash -c ': > %[2]s/kept && unshare --mount=%[2]s/kept true && umount %[2]s/kept'", cpu, dir)
		if run(t, root, try).Code == 0 {
			ok(t, root, fmt.Sprintf("taskset -a -c -p %d $(cat %s)", cpu, c.Home.Path("slurmd-"+node+".pid")))
			return
		}
	}
	t.Skip("no mount namespace can be kept as a file here, which is what job_container/tmpfs does")
}

// With job_container/tmpfs every task is moved into a mount namespace that the job has of its own.
// withJobContainers gives jobs of a node a /tmp of their own until the test ends.
func withJobContainers(t *testing.T, node string) {
	t.Helper()
	conf := c.Home.Path("etc", "job_container.conf")
	if err := os.WriteFile(conf, []byte("AutoBasePath=true\nBasePath="+c.Home.Path("containers")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(conf) })
	reconfigured(t, "JobContainerType=job_container/tmpfs\n")
	pinToKeepNamespaces(t, node)
}

func TestTasksInAJobContainerAreHeld(t *testing.T) {
	needStrict(t)
	begin(t)
	withJobContainers(t, "n1")

	script, found := filepath.Join(one.Home, "around.sh"), filepath.Join(one.Home, "around.out")
	executable(t, script, lookAround("around.out"))
	_ = os.Remove(found)
	out := batch(t, one, "-n2 --gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", "touch /tmp/mine; ls /tmp; srun -n1 "+seen+"; srun -n2 ls /tmp; "+script)
	if got, want := strings.Fields(out), []string{"mine", "3000", "mine", "mine"}; !slices.Equal(got, want) {
		t.Errorf("a job with a /tmp of its own wrote %q, want %q", got, want)
	}
	wantHeld(t, found, 3000)
	_ = os.Remove(found)
	ok(t, one, "srun --task-epilog="+script+" --gres=vgpu:1 --vgpu-mem=3000 true")
	wantHeld(t, found, 3000)
	onlyItsOwnPages(t)
	job := submit(t, one, onFirstGPU(t)+" --input="+nodes(), "if (exec 3<>/proc/self/fd/0/nvidia1); then echo open; else echo closed; fi")
	awaitEnd(t, job)
	if out := output(t, one, job); strings.Contains(out, "open") {
		t.Errorf("the other GPU can be opened:\n%s", out)
	}
}

// What the node mounts while a step runs is there for the step, and what it unmounts is not kept.
func TestAStepSeesTheNodesMounts(t *testing.T) {
	needStrict(t)
	begin(t)
	base := c.Home.Path("mnt", "shared")
	inner := filepath.Join(base, "inner")
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := func(target string) {
		t.Helper()
		if err := unix.Mount("tmpfs", target, "tmpfs", 0, "mode=755"); err != nil {
			t.Fatal(err)
		}
	}
	mount(base)
	t.Cleanup(func() { _ = unix.Unmount(base, unix.MNT_DETACH) })
	if err := unix.Mount("", base, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	pids, gate := filepath.Join(one.Home, "pids"), filepath.Join(one.Home, "gate")
	t.Cleanup(func() { _, _ = os.Remove(pids), os.Remove(gate) })
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000", "echo $$ $PPID > pids.new; mv pids.new pids; until [ -e gate ]; do sleep 0.1; done")
	var step []string // the task and its slurmstepd
	until(t, "a step", 30*time.Second, func() error {
		data, err := os.ReadFile(pids)
		step = strings.Fields(string(data))
		return err
	})
	wantSeen := func(want int) {
		t.Helper()
		for _, pid := range step {
			if got := strings.Count(ok(t, root, "cat /proc/"+pid+"/mountinfo").Stdout, inner); got != want {
				t.Errorf("process %s of the step sees %d of the node's mounts, want %d", pid, got, want)
			}
		}
	}
	wantSeen(0)
	mount(inner)
	wantSeen(1)
	if err := unix.Unmount(inner, 0); err != nil {
		t.Errorf("the step keeps what the node wants to unmount: %v", err)
	}
	wantSeen(0)
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	finish(t, one, job)
}
