// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/keeper"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// The test's own program is vgpud too, as a supervisor begins its worker by its own name.
func TestMain(m *testing.M) {
	if last := os.Args[len(os.Args)-1]; slices.Contains([]string{"run", "release", workerWord}, last) {
		if how := os.Getenv("HURRY"); how != "" {
			hurry(how)
		}
		os.Exit(command(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// longest is only for what never comes.
const longest = 5 * time.Minute

// daemon is one vgpud.
type daemon struct {
	t      *testing.T
	run    string
	config string
	// program is vgpud's, and before what a shell does before it.
	program, before string
	cmd             *exec.Cmd
	stderr          *os.File
}

func prepared(t *testing.T) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{t: t, program: os.Args[0], run: filepath.Join(dir, "run"), config: filepath.Join(dir, "config.yaml")}
	if err := os.Mkdir(d.run, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.stderr, err = os.Create(filepath.Join(dir, "stderr")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.stderr.Close() })
	d.configure("freeze")
	return d
}

func (d *daemon) configure(cheaters string) {
	d.t.Helper()
	text := fmt.Sprintf("run_dir: %s\nspool_dir: %s\ndevice_dir: %s\nlog: {level: info}\ncheaters: %s\n", d.run, d.run, d.run, cheaters)
	if err := os.WriteFile(d.config, []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) command(word string, env ...string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", d.before+`exec "$0" "$@"`, d.program, "--config", d.config, word)
	cmd.Stderr = d.stderr
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, env...)
	return cmd
}

// begin waits until there is a worker.
func (d *daemon) begin(env ...string) {
	d.t.Helper()
	d.cmd = d.command("run", env...)
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() })
	d.await("a worker", func() bool { return d.worker() != 0 && isWatching(d.worker()) })
}

// said is what it has written on standard error.
func (d *daemon) said() string {
	text, err := os.ReadFile(d.stderr.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// readAgain waits until it has read its configuration again.
func (d *daemon) readAgain(times int) {
	d.t.Helper()
	d.await("word of the configuration", func() bool { return strings.Count(d.said(), "the configuration was read again") >= times })
}

// worker is the one that the supervisor has.
func (d *daemon) worker() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", d.cmd.Process.Pid, d.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0: there is none
	return pid
}

func isWatching(pid int) bool { return slices.Contains(files(pid), "anon_inode:inotify") }

func files(pid int) (found []string) {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	for _, entry := range entries {
		name, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, entry.Name()))
		found = append(found, name)
	}
	return found
}

func (d *daemon) await(what string, is func() bool) {
	d.t.Helper()
	for until := time.Now().Add(longest); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			d.t.Fatalf("no %s\n%s", what, d.said())
		}
	}
}

func (d *daemon) locked() bool {
	is, err := trusted.IsLocked(filepath.Join(d.run, "vgpud.lock"))
	return err == nil && is
}

// frozen is a process that a record says is frozen.
func (d *daemon) frozen() (pid int) {
	d.t.Helper()
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	pid = sleeper.Process.Pid
	start, _ := audit.Auditor{Proc: "/proc"}.StartOf(pid)
	boot, err := inventory.BootID()
	if err != nil {
		d.t.Fatal(err)
	}
	r := keeper.Record{BootID: boot, Frozen: []keeper.Frozen{{Job: 1, Step: "0", Processes: []audit.Process{{PID: pid, StartTicks: start}}}}}
	if err := r.Write(d.off()); err != nil {
		d.t.Fatal(err)
	}
	if err := sleeper.Process.Signal(unix.SIGSTOP); err != nil {
		d.t.Fatal(err)
	}
	d.await("stopped process", func() bool { return isStopped(pid) })
	return pid
}

func (d *daemon) off() string { return filepath.Join(d.run, "vgpud.off") }

func isStopped(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(text), ") T ")
}

func (d *daemon) letGo(pid int) {
	d.t.Helper()
	d.await("thawed process", func() bool { return !isStopped(pid) })
	d.await("end of the record", func() bool { _, err := os.Stat(d.off()); return err != nil })
}

// Without a slice at work nothing runs, and no file of a GPU is open.
func TestIdleCostsNothing(t *testing.T) {
	d := prepared(t)
	d.begin()
	switches := func(pid int) (sum int) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		for _, task := range tasks {
			text, _ := os.ReadFile(task)
			for line := range strings.Lines(string(text)) {
				if rest, found := strings.CutPrefix(line, "voluntary_ctxt_switches:"); found {
					n, _ := strconv.Atoi(strings.TrimSpace(rest))
					sum += n
				}
			}
		}
		return sum
	}
	pids := []int{d.cmd.Process.Pid, d.worker()}
	// Go puts threads to sleep for a moment after the start; then there is a second in which none woke up, or there never is.
	d.await("second without work", func() bool {
		before := []int{switches(pids[0]), switches(pids[1])}
		time.Sleep(time.Second)
		return slices.Equal(before, []int{switches(pids[0]), switches(pids[1])}) && before[0] > 0 && before[1] > 0
	})
	for _, pid := range pids {
		for _, file := range files(pid) {
			if strings.HasPrefix(file, "/dev/nvidia") {
				t.Errorf("%s is open", file)
			}
		}
	}
}

func TestAnotherWorkerComesAndWhatTheLastOneHeldIsUndone(t *testing.T) {
	d := prepared(t)
	d.begin()
	pid, first := d.frozen(), d.worker()
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.letGo(pid)
	d.await("another worker", func() bool { w := d.worker(); return w != 0 && w != first && isWatching(w) })
}

func TestTheWorkerEndsWithItsSupervisorAndRunOrReleaseUndo(t *testing.T) {
	for _, word := range []string{"run", "release"} {
		d := prepared(t)
		d.begin()
		pid, worker := d.frozen(), d.worker()
		if err := d.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = d.cmd.Wait()
		d.await("end of the worker", func() bool { return !isWatching(worker) })
		d.await("free lock", func() bool { return !d.locked() })
		if word == "run" {
			d.begin()
		} else if err := d.command(word).Run(); err != nil {
			t.Fatal(err)
		}
		d.letGo(pid)
	}
}

// A process that has the number of one that was frozen is another one's business.
func TestALaterProcessOfThatNumberIsLeftAlone(t *testing.T) {
	d := prepared(t)
	pid := d.frozen()
	boot, _ := inventory.BootID()
	r := keeper.Record{BootID: boot, Frozen: []keeper.Frozen{{Job: 1, Processes: []audit.Process{{PID: pid, StartTicks: 1}}}}}
	if err := r.Write(d.off()); err != nil {
		t.Fatal(err)
	}
	if err := d.command("release").Run(); err != nil {
		t.Fatal(err)
	}
	if !isStopped(pid) {
		t.Error("it was let go")
	}
}

func TestOnlyOneRuns(t *testing.T) {
	d := prepared(t)
	d.begin()
	second := d.command("run")
	var says bytes.Buffer
	second.Stderr = &says
	if err := second.Run(); err == nil || !strings.Contains(says.String(), "there is another one") {
		t.Errorf("%v: %s", err, says.String())
	}
	if d.worker() == 0 {
		t.Error("the first has ended")
	}
}

// As a unit or a pod may bound it; nobody else can say why slices keep the driver's weights.
func TestItSaysWhatItMayNot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("who is not root has it not anyway")
	}
	d := prepared(t)
	d.before = `exec setpriv --bounding-set=-sys_ptrace "$0" "$@"; `
	d.begin()
	if !strings.Contains(d.said(), "CAP_SYS_PTRACE is missing") {
		t.Errorf("it says %q", d.said())
	}
}

// SIGHUP has the worker read the configuration again; it stays, and so does what systemd has been told.
func TestSystemdIsToldAndTheConfigurationReadAgain(t *testing.T) {
	d := prepared(t)
	path, said := notified(t)
	d.begin("NOTIFY_SOCKET="+path, "WATCHDOG_USEC=10000000")
	if ready, watch := said(), said(); ready != "READY=1" || watch != "WATCHDOG_USEC=0" {
		t.Errorf("systemd is told %q, %q", ready, watch)
	}
	first := d.worker()
	d.configure("log")
	if err := d.cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.readAgain(1)
	if d.worker() != first {
		t.Error("the worker is another one")
	}
}

// Nobody waits for a worker that reads its configuration again: on a busy node its loop may end late.
func TestALoopThatEndsLateIsNoFailure(t *testing.T) {
	for within, fails := range map[time.Duration]bool{endsWithin / 2: true, readsWithin: false} {
		ended := make(chan error, 1)
		time.AfterFunc(2*endsWithin, func() { ended <- nil })
		if err := (node{cfg: config.Config{RunDir: t.TempDir()}}).await(ended, within); (err != nil) != fails {
			t.Errorf("within %s: %v", within, err)
		}
	}
}

// A worker that holds something and says nothing is as good as dead; one that holds nothing may be silent.
func TestSilenceIsHeard(t *testing.T) {
	for doing, hears := range map[keeper.Doing]bool{keeper.Holding: true, keeper.Idle: false} {
		beats, end, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		w := &worker{beats: beats, said: make(chan keeper.Doing, 64)}
		go w.listen()
		if _, err := end.Write([]byte{byte(doing)}); err != nil {
			t.Fatal(err)
		}
		<-w.said
		patience := 300 * time.Millisecond
		if hears {
			patience = longest
		}
		select {
		case <-w.said:
			if !hears {
				t.Errorf("%c: given up", doing)
			}
		case <-time.After(patience):
			if hears {
				t.Errorf("%c: waited for", doing)
			}
		}
		end.Close()
		for range w.said {
		}
		beats.Close()
	}
}

// The prolog may run in the job's cgroup, and vgpud must not end with the job.
func TestItLeavesTheJobOfTheProlog(t *testing.T) {
	root := "/sys/fs/cgroup/freezer"
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil || os.Getuid() != 0 {
		t.Skip("no such hierarchy here, or not root")
	}
	top := filepath.Join(root, fmt.Sprintf("vgpud-test-%d", os.Getpid()))
	folder := filepath.Join(top, "uid_1000/job_7/step_extern")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		for ; folder != root; folder = filepath.Dir(folder) {
			if err := os.Remove(folder); err != nil {
				t.Error(err)
			}
		}
	})
	d := prepared(t)
	d.before = "echo 0 > " + filepath.Join(folder, "cgroup.procs") + "; "
	d.begin()
	for _, pid := range []int{d.cmd.Process.Pid, d.worker()} {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)); err != nil || strings.Contains(string(text), "/job_7") {
			t.Errorf("it is in the job's: %s, %v", text, err)
		}
	}
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	d.await("end of the worker", func() bool { return !d.locked() })
}
