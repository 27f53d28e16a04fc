// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pages"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

// The scripts know `epilog`: the program with its configuration in $WORK, dead at the crash point
// that CRASH names.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "epilog" {
		privatemounts.Enter()
	}
	testscript.Main(m, map[string]func(){
		"epilog": func() {
			if at := os.Getenv("CRASH"); at != "" {
				crashpoint.Set(func(name string) {
					if name == at {
						syscall.Kill(os.Getpid(), syscall.SIGKILL)
					}
				})
			}
			os.Exit(command(append([]string{"--config", filepath.Join(os.Getenv("WORK"), "config.yaml")}, os.Args[1:]...)))
		},
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Defer(func() { privatemounts.Clear(env.WorkDir) })
			text := fmt.Sprintf("run_dir: %[1]s/run\nspool_dir: %[1]s/spool\nlog: {file: %[1]s/log}\n", env.WorkDir)
			return os.WriteFile(filepath.Join(env.WorkDir, "config.yaml"), []byte(text), 0o644)
		},
		Condition: func(name string) (bool, error) { // [mounts] where tests may mount
			if name != "mounts" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return privatemounts.Entered(), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"granted": cmdGranted, "counted": cmdCounted, "refused": cmdRefused, "crash": cmdCrash, "held": cmdHeld, "count": cmdCount,
		},
	})
}

func store(ts *testscript.TestScript) state.Store {
	bootID, err := inventory.BootID()
	ts.Check(err)
	return state.Store{Dir: rundir.Dir(ts.MkAbs("run")), BootID: bootID, Log: hclog.NewNullLogger()}
}

func jobOf(ts *testscript.TestScript, text string) uint32 {
	id, err := strconv.ParseUint(text, 10, 32)
	ts.Check(err)
	return uint32(id)
}

// cmdGranted leaves what the prolog leaves for a job of 3000 MiB that used PEAK of them: granted JOB PEAK.
func cmdGranted(ts *testscript.TestScript, _ bool, args []string) {
	s, job := store(ts), jobOf(ts, args[0])
	peakMiB, err := strconv.ParseUint(args[1], 10, 32)
	ts.Check(err)
	tx, err := s.Begin(context.Background())
	ts.Check(err)
	defer tx.End()
	slice := device.Slice{Device: "GPU-a", MemMiB: 3000, SMPercent: 30}
	since := time.Now().UTC().Add(-3 * time.Hour).Truncate(time.Second)
	tx.Put(job, []state.Slice{{Job: job, UID: 1000, Since: state.MillisOf(since), Slice: slice}})
	ts.Check(tx.Commit())
	ts.Check(os.MkdirAll(filepath.Join(s.Dir.Job(job), "steps", "0"), 0o755))
	_, err = pages.Make(s.Dir.Pages(job))
	ts.Check(err)
	ts.Check(ledger.Create(s.Dir.Ledger(job), job, 1, uint32(os.Getuid()), uint32(os.Getgid())))
	file, err := os.OpenFile(s.Dir.Ledger(job), os.O_WRONLY, 0)
	ts.Check(err)
	defer file.Close()
	for offset, value := range map[int64]uint64{64 + 128: peakMiB << 20, 64 + 2*128: 1} { // peak_bytes[0], refusals[0]
		_, err = file.WriteAt(binary.LittleEndian.AppendUint64(nil, value), offset)
		ts.Check(err)
	}
	ts.Check(grant.Write(s.Dir.Grant(job), grant.Grant{Job: job, BootID: s.BootID, UID: 1000, Node: "n1", Since: since, Policy: request.PolicyElastic, Slices: []device.Slice{slice}}))
}

// cmdCounted lets vgpud have counted a job's GPU time, in part by a split, and perhaps have killed a step of it: counted JOB SECONDS UNKNOWN-SECONDS [killed].
func cmdCounted(ts *testscript.TestScript, _ bool, args []string) {
	path, job := store(ts).Dir.Time(jobOf(ts, args[0])), jobOf(ts, args[0])
	seconds, err := strconv.ParseUint(args[1], 10, 32)
	ts.Check(err)
	unknown, err := strconv.ParseUint(args[2], 10, 32)
	ts.Check(err)
	ts.Check(ledger.CreateTime(path, job, 1))
	page, err := ledger.OpenTime(path, job)
	ts.Check(err)
	counted := ledger.TimeDevice{BusyNs: seconds * 1e9, UnknownNs: unknown * 1e9, LookedNs: uint64(ledger.TimeNow() + time.Hour), Flags: ledger.TimeInexact}
	if len(args) > 3 {
		counted.Killed, counted.Verdict = 1, share.MakesWithoutEnd.Number()
	}
	ts.Check(page.Put([]ledger.TimeDevice{counted}))
	ts.Check(page.Close())
}

// cmdRefused leaves what the prolog leaves for a job that got nothing: refused JOB [requeued].
func cmdRefused(ts *testscript.TestScript, _ bool, args []string) {
	s, job := store(ts), jobOf(ts, args[0])
	ts.Check(os.MkdirAll(s.Dir.Job(job), 0o755))
	ts.Check(grant.Write(s.Dir.Grant(job), grant.Grant{Job: job, BootID: s.BootID, Node: "n1", Since: time.Now(),
		Refusal: "no GPU has 3000 MiB free", Requeued: len(args) > 1}))
}

// cmdHeld counts the slices of the state: held N.
func cmdHeld(ts *testscript.TestScript, _ bool, args []string) {
	current, err := store(ts).Read()
	ts.Check(err)
	if strconv.Itoa(len(current.Slices)) != args[0] {
		ts.Fatalf("the state has %v", current.Slices)
	}
}

// cmdCrash runs an epilog that must die at a crash point: crash NAME.
func cmdCrash(ts *testscript.TestScript, _ bool, args []string) {
	self, err := os.Executable()
	ts.Check(err)
	cmd := &exec.Cmd{Path: self, Args: []string{"epilog"}, Stderr: os.Stderr,
		Env: []string{"WORK=" + ts.Getenv("WORK"), "SLURM_JOB_ID=" + ts.Getenv("SLURM_JOB_ID"), "SLURMD_NODENAME=n1", "CRASH=" + args[0]}}
	err = cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		ts.Fatalf("the epilog did not die at %s: %v", args[0], err)
	}
}

// cmdCount counts what a pattern matches: count N GLOB.
func cmdCount(ts *testscript.TestScript, _ bool, args []string) {
	found, err := filepath.Glob(ts.MkAbs(args[1]))
	ts.Check(err)
	if strconv.Itoa(len(found)) != args[0] {
		ts.Fatalf("%s matches %d: %v", args[1], len(found), found)
	}
}
