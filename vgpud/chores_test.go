// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// hurry has the vgpud of a test do in moments what takes minutes; "jobs": audits after jobs' ends alone.
func hurry(how string) {
	for i := range allChores {
		c := &allChores[i]
		c.each /= 500
		c.atRest /= 500
		c.most /= 100
		if how == "jobs" && c.afterJobs {
			c.each, c.atRest = time.Hour, time.Hour
		}
	}
	soonAfter = 10 * time.Millisecond
}

// withCommands has a vgpuctl beside vgpud, which notes each of its starts, and then does what a script says.
func withCommands(t *testing.T, script string) *daemon {
	t.Helper()
	d := prepared(t)
	d.program = filepath.Join(t.TempDir(), "vgpud")
	d.install()
	text := fmt.Sprintf("#!/bin/sh\necho \"$1 $2 pid=$$ nice=$(cut -d' ' -f19 /proc/self/stat) $(grep -h -e CapEff -e NoNewPrivs /proc/self/status | tr -d '\\t\\n')\" >>%s\n%s\n",
		d.notes(), script)
	if err := os.WriteFile(filepath.Join(filepath.Dir(d.program), "vgpuctl"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *daemon) notes() string { return filepath.Join(filepath.Dir(d.config), "notes") }

// noted are the starts of a command.
func (d *daemon) noted(command string) (lines []string) {
	d.t.Helper()
	text, err := os.ReadFile(d.notes())
	if err != nil && !os.IsNotExist(err) {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, command+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// hold gives a job slices, or takes them away.
func (d *daemon) hold(job uint32, held ...state.Slice) {
	d.t.Helper()
	boot, err := inventory.BootID()
	if err != nil {
		d.t.Fatal(err)
	}
	tx, err := state.Of(config.Config{RunDir: d.run}, boot, hclog.NewNullLogger()).Begin(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	defer tx.End()
	tx.Put(job, held)
	if err := tx.Commit(); err != nil {
		d.t.Fatal(err)
	}
}

func aSlice(job uint32) state.Slice {
	return state.Slice{Job: job, UID: 1000, Slice: device.Slice{Device: "GPU-a", MemMiB: 1000}}
}

func TestChoresAreDoneWhileSlicesAreThere(t *testing.T) {
	d := withCommands(t, "")
	d.begin("HURRY=1")
	d.await("an audit of an empty node", func() bool { return len(d.noted("audit")) > 0 })
	if n := len(d.noted("sample")); n > 0 {
		t.Errorf("an empty node is sampled %d times", n)
	}
	if n := len(d.noted("records")); n > 0 {
		t.Errorf("%d reporters for no record", n)
	}
	d.hold(7, aSlice(7))
	for _, command := range []string{"sample", "audit", "sweep"} {
		d.await(command, func() bool { return len(d.noted(command)) > 2 })
	}
	if err := os.MkdirAll(filepath.Join(d.run, "usage"), 0o755); err != nil { // spool_dir is the same
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.run, "usage", "7.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.await("a reporter", func() bool { return len(d.noted("records")) > 0 })
	d.hold(7)
	d.await("rest", func() bool {
		before := len(d.noted("sample"))
		time.Sleep(100 * time.Millisecond) // five times as long as a sample's
		return len(d.noted("sample")) == before
	})
}

// One that hangs is ended, and holds up neither the shares nor another one. Its failure is said once.
func TestAChoreThatHangsIsEnded(t *testing.T) {
	d := withCommands(t, `[ "$1" != audit ] || exec sleep 1000`)
	d.begin("HURRY=1")
	worker := d.worker()
	d.hold(7, aSlice(7))
	d.await("a second audit", func() bool { return len(d.noted("audit")) > 1 })
	first := len(d.noted("sample"))
	d.await("samples meanwhile", func() bool { return len(d.noted("sample")) > first+2 })
	if d.worker() != worker {
		t.Error("the worker is another one")
	}
	if said := d.said(); strings.Count(said, "has failed: command=audit") != 1 || !strings.Contains(said, "it took too long") {
		t.Errorf("it says\n%s", said)
	}
}

// Doctor reads by a file since when a command fails.
func TestAChoreThatFailsIsMarked(t *testing.T) {
	d := withCommands(t, `[ "$1" != sample ] || [ ! -e "$(dirname "$0")/fails" ]`)
	fails, mark := filepath.Join(filepath.Dir(d.program), "fails"), rundir.Dir(d.run).VgpudFailed("sample")
	if err := os.WriteFile(fails, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d.begin("HURRY=1")
	d.hold(7, aSlice(7))
	var first os.FileInfo
	d.await("a mark", func() (is bool) { info, err := os.Stat(mark); first = info; return err == nil })
	more := len(d.noted("sample")) + 3
	d.await("more failures", func() bool { return len(d.noted("sample")) >= more })
	if now, err := os.Stat(mark); err != nil || !now.ModTime().Equal(first.ModTime()) {
		t.Errorf("%v: the first failure was at %s", err, first.ModTime())
	}
	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
	d.await("its end", func() bool { _, err := os.Stat(mark); return os.IsNotExist(err) })
}

func TestOfAFailureTheLogHasTheBeginning(t *testing.T) {
	d := withCommands(t, `head -c 100000 /dev/zero | tr '\0' x >&2; exit 1`)
	d.begin("HURRY=1")
	d.hold(7, aSlice(7))
	d.await("a failure", func() bool { return strings.Contains(d.said(), strings.Repeat("x", mostWords)) })
	if strings.Contains(d.said(), strings.Repeat("x", mostWords+1)) {
		t.Error("the log has more of a command's words than it should")
	}
}

// The end of a job has its leftovers looked for at once.
func TestAnAuditComesAfterEachJob(t *testing.T) {
	d := withCommands(t, "")
	d.hold(7, aSlice(7))
	d.hold(8, aSlice(8))
	d.begin("HURRY=jobs")
	d.await("both jobs", func() bool { return len(d.noted("sample")) > 1 })
	if n := len(d.noted("audit")); n > 0 {
		t.Fatalf("%d audits before a job's end", n)
	}
	d.hold(7)
	d.await("an audit", func() bool { return len(d.noted("audit")) > 0 })
	d.await("a look at the GPUs", func() bool { return len(d.noted("health")) > 0 })
	// A GPU that has failed would be given to the next job, also where each job leaves the node empty.
	looks := len(d.noted("health"))
	d.hold(8)
	d.await("a look at the GPUs of an empty node", func() bool { return len(d.noted("health")) > looks })
}

// Each has the rights that its work needs, and jobs come before it.
func TestChoresHaveFewRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("who is not root has none anyway")
	}
	var now [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &now[0]); err != nil {
		t.Fatal(err)
	}
	d := withCommands(t, "")
	d.begin("HURRY=1")
	d.hold(7, aSlice(7))
	for _, c := range allChores[:3] {
		d.await(c.args[0], func() bool { return len(d.noted(c.args[0])) > 0 })
		may := uint64(0)
		for _, capability := range c.may {
			may |= 1 << capability
		}
		may &= uint64(now[1].Permitted)<<32 | uint64(now[0].Permitted)
		line := d.noted(c.args[0])[0]
		for _, want := range []string{"nice=10", fmt.Sprintf("CapEff:%016x", may), "NoNewPrivs:1"} {
			if !strings.Contains(line, want) {
				t.Errorf("no %s in %q", want, line)
			}
		}
	}
	for _, pid := range []int{d.cmd.Process.Pid, d.worker()} { // which keep theirs
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("CapEff:\t%016x", uint64(now[1].Effective)<<32|uint64(now[0].Effective))) {
			t.Errorf("%v: %s", err, status)
		}
	}
}

func TestChoresEndWithVgpud(t *testing.T) {
	d := withCommands(t, `[ "$1" != sample ] || exec sleep 1000`)
	d.begin("HURRY=1")
	d.hold(7, aSlice(7))
	d.await("a sample", func() bool { return len(d.noted("sample")) > 0 })
	var pid int
	_, of, _ := strings.Cut(d.noted("sample")[0], "pid=")
	if _, err := fmt.Sscan(of, &pid); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	d.await("its end", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || !slices.Contains(strings.Split(string(text), "\x00"), "1000")
	})
}
