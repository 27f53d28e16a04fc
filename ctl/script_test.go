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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/picture"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); name != "vgpuctl" && name != "vgpu-draw" {
		privatemounts.Enter()
	}
	testscript.Main(m, map[string]func(){"vgpuctl": func() {
		if at := os.Getenv("CRASH"); at != "" {
			crashpoint.Set(func(name string) {
				if name == at {
					syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
			})
		}
		if number := os.Getenv("NUMBER"); number != "" {
			version.Number = number
		}
		main()
	}, "vgpu-draw": func() {
		if err := picture.Draw(os.Stdin, os.Stdout, time.Now(), time.Local); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}})
}

// The scripts run the command as a user would, on a node of two H200s that the setup describes.
// sacct and sacctmgr are scripts of the test; what the real ones do is in internal/report.
func TestScripts(t *testing.T) {
	library, err := filepath.Abs("../build/libslurm-vgpu.so")
	if err != nil {
		t.Fatal(err)
	}
	_, libraryErr := os.Stat(library)
	simulated, err := filepath.Abs("../build/sim/libnvidia-ml.so.1")
	if err != nil {
		t.Fatal(err)
	}
	_, simErr := os.Stat(simulated)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Defer(func() { privatemounts.Clear(env.WorkDir) })
			env.Setenv("SIM", simulated)
			env.Setenv("FILL", filepath.Join(filepath.Dir(simulated), "vgpu-fill"))
			env.Setenv("LIBRARY", library)
			env.Setenv("NO_COLOR", "1")
			if err := writePrograms(env.WorkDir); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "config.yaml"), fmt.Appendf(nil,
				"run_dir: %[1]s/run\nspool_dir: %[1]s/spool\nnvml_library: %[1]s/none.so\nlibrary: %[1]s/none.so\n"+
					"slurm: {scontrol: %[1]s/none, squeue: %[1]s/bin/squeue, sacct: %[1]s/bin/sacct, sacctmgr: %[1]s/bin/sacctmgr}\n", env.WorkDir), 0o644)
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "built": // the libraries are
				return libraryErr == nil && simErr == nil, nil
			case "root":
				return os.Geteuid() == 0, nil
			case "whole_node": // is seen from here, as in the first pid namespace
				return audit.Here("").WholeNode, nil
			case "mounts": // may be made
				return privatemounts.Entered(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"inventory": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(writeInventory(ts, args)) },
			"granted":   func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(writeGrant(ts, args)) },
			"counted":   func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(writeCounts(ts, args)) },
			"scheduled": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(writeGroup(ts, args)) },
			"refused":   func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(writeRefusal(ts, args)) },
			"record":    func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(writeRecord(ts, args)) },
			"code":      expectCode,
			"step":      func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(prepareStep(ts, args)) },
			"limits":    func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(compareLimits(ts, args)) },
			"crash":     crash,
		},
	})
}

// fakeSacct answers for the jobs that the scripts ask for. $5 is the delimiter, $7 the job, $9 the columns.
const fakeSacct = `#!/bin/sh
d=${5#--delimiter=}
e=$d
case $9 in *,Extra,*) e=$d$d ;; esac
case $7 in
9|8_3) printf '%s\n' "c${d}8_3${d}9${d}COMPLETED${d}0:0${d}physics${d}60${d}90${d}100${d}200${d}2${d}n[1-2]${d}{\"vgpu\":{\"v\":1,\"nodes\":{\"n1\":[{\"gpu\":\"GPU-aaaa\",\"mem_mib\":3000,\"cores\":0,\"peak_mib\":12,\"refused\":0}]},\"refusals\":{\"n2\":\"no GPU has 3000 MiB free\"}}}${e}c" ;;
10) printf '%s\n' "c${d}10${d}10${d}COMPLETED${d}0:0${d}physics${d}60${d}90${d}100${d}200${d}1${d}n1${d}paid${e}c" ;;
13) printf '%s\n' "c${d}13${d}13${d}REQUEUED${d}0:0${d}physics${d}60${d}90${d}100${d}200${d}1${d}n1${d}{\"vgpu\":{\"v\":1,\"nodes\":{},\"refusals\":{\"n1\":\"no GPU has 3000 MiB free\"}}}${e}c" \
	"c${d}13${d}13${d}FAILED${d}7:0${d}physics${d}240${d}300${d}400${d}4000${d}2${d}n[1-2]${d}{\"vgpu\":{\"v\":1,\"nodes\":{\"n2\":[{\"gpu\":\"GPU-bbbb\",\"mem_mib\":3000,\"cores\":30,\"peak_mib\":1000,\"refused\":0,\"gpu_s\":540,\"curve\":\"400,600,1000,300,0zzzzz,0zzz00\"}]}}}${e}c" ;;
15) printf '%s\n' "c${d}15${d}15${d}CANCELLED by 0${d}0:0${d}physics${d}60${d}90${d}100${d}200${d}1${d}n1${d}${e}c" ;;
14) printf '%s\n' "c${d}14${d}14${d}RUNNING${d}0:0${d}physics${d}60${d}90${d}100${d}Unknown${d}1${d}n5${d}${e}c" ;;
44) for t in "44_1${d}48" "44_2${d}49" "44_[3-20%%2]${d}44"; do printf "c${d}$t${d}PENDING${d}0:0${d}physics${d}60${d}90${d}Unknown${d}Unknown${d}1${d}None assigned${d}${e}c\n"; done ;;
45) printf '%s\n' "c${d}45${d}45${d}REQUEUED${d}0:0${d}physics${d}60${d}90${d}100${d}200${d}1${d}n1${d}{\"vgpu\":{\"v\":1,\"nodes\":{},\"refusals\":{\"n1\":\"no GPU has 3000 MiB free\"}}}${e}c" \
	"c${d}45${d}45${d}PENDING${d}0:0${d}physics${d}60${d}300${d}Unknown${d}Unknown${d}1${d}None assigned${d}${e}c" ;;
46) printf '%s\n' "c${d}46${d}46${d}REQUEUED${d}0:0${d}physics${d}60${d}90${d}100${d}200${d}1${d}n1${d}{\"vgpu\":{\"v\":1,\"nodes\":{},\"refusals\":{\"n1\":\"no GPU has 3000 MiB free\"}}}${e}c" \
	"c${d}46${d}46${d}CANCELLED by 0${d}0:0${d}physics${d}60${d}201${d}None${d}201${d}1${d}None assigned${d}${e}c" ;;
47) printf '%s\n' "c${d}47_1${d}50${d}COMPLETED${d}0:0${d}physics${d}60${d}90${d}100${d}200${d}1${d}n1${d}${e}c" \
	"c${d}47_2${d}47${d}COMPLETED${d}0:0${d}physics${d}60${d}90${d}100${d}200${d}1${d}n1${d}{\"vgpu\":{\"v\":1,\"nodes\":{\"n1\":[{\"gpu\":\"GPU-aaaa\",\"mem_mib\":3000,\"cores\":100,\"peak_mib\":3000}]}}}${e}c" ;;
12) echo "sacct: error: Connection refused" >&2; exit 1 ;;
esac
`

// fakeSqueue tells where jobs stand (%T|%r|%N|%S), and what they asked for. $4 is the job, $5 the format.
const fakeSqueue = `#!/bin/sh
job=${4#--jobs=}
case $5 in
--Format=*) case $job in 41) echo "$job||gres:gpu:1|||" ;; 43) echo "$job|||||" ;; 4?) echo "$job|gres:vgpu:1||||" ;; *) exit 1 ;; esac ;;
*) case $job in
	20_1) echo 123 ;;
	99999) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
	40) echo "40|PENDING|QOSMaxGRESPerUser||Unknown" ;;
	41|42|43) echo "$job|RUNNING|None|n7|100" ;;
	44) echo "44|PENDING|Resources||Unknown" ;;
	45) echo "45|PENDING|BeginTime||400" ;;
	*) exit 1 ;;
	esac ;;
esac
`

// fakeScontrol knows of one job what room it waits for.
const fakeScontrol = `#!/bin/sh
case $* in
"show job 45") printf 'JobId=45 JobName=x\n   JobState=PENDING Reason=BeginTime\n   AdminComment=vgpu: waits: no GPU of n1 fits 3000 MiB\n' ;;
*) exit 1 ;;
esac
`

func writePrograms(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "bin/squeue"), []byte(fakeSqueue), 0o755),
		os.WriteFile(filepath.Join(dir, "bin/waits"), []byte(fakeScontrol), 0o755),
		os.WriteFile(filepath.Join(dir, "bin/sacct"), []byte(fakeSacct), 0o755),
		os.WriteFile(filepath.Join(dir, "bin/sacctmgr"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
}

var (
	gpuA = device.GPU{UUID: "GPU-aaaa", PCIBusID: "00000000:01:00.0", Name: "NVIDIA H200", Type: "h200", MemMiB: 143771}
	gpuB = device.GPU{UUID: "GPU-bbbb", Index: 1, Minor: 1, PCIBusID: "00000000:02:00.0", Name: "NVIDIA H200", Type: "h200", MemMiB: 143771}
)

// firstGPU is gpuA, or what $SIM_GPU says that the simulated driver has in its place.
func firstGPU(ts *testscript.TestScript) device.GPU {
	gpu := gpuA
	if simulated := ts.Getenv("SIM_GPU"); simulated != "" {
		gpu.UUID = device.UUID(simulated)
	}
	return gpu
}

// inventory [boot]: an inventory of this boot, or of another one.
func writeInventory(ts *testscript.TestScript, args []string) error {
	boot, err := inventory.BootID()
	if err != nil {
		return err
	}
	if len(args) > 0 {
		boot = args[0]
	}
	if err := os.MkdirAll(ts.MkAbs("run"), 0o755); err != nil {
		return err
	}
	return inventory.Write(ts.MkAbs("run/inventory.json"), device.Inventory{BootID: boot, GPUs: []device.GPU{firstGPU(ts), gpuB}})
}

func sampleGrant(job string, memMiB, percent string) (grant.Grant, error) {
	id, err1 := strconv.ParseUint(job, 10, 32)
	mib, err2 := strconv.ParseInt(memMiB, 10, 64)
	sm, err3 := strconv.Atoi(percent)
	return grant.Grant{
		Job: uint32(id), UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Node: "n1", Since: time.Now().Add(-90 * time.Minute),
		Request: "mem=" + memMiB + ";cores=" + percent, Entitlement: request.Entitlement{Slices: 1, MemMiB: mib, SMPercent: sm},
		Slices: []device.Slice{{Device: gpuA.UUID, MemMiB: mib, SMPercent: sm}}, Isolation: grant.IsolationStrict, NodeGPUsMiB: []int64{gpuA.MemMiB},
	}, errors.Join(err1, err2, err3)
}

// granted JOB MIB PERCENT [POLICY [PRIORITY]]: a running job that uses 100 MiB, has used all, was refused 3 allocations, and has used
// 15 percent of the time.
func writeGrant(ts *testscript.TestScript, args []string) error {
	g, err := sampleGrant(args[0], args[1], args[2])
	if err != nil {
		return err
	}
	g.Slices[0].Device = firstGPU(ts).UUID
	if g.BootID, err = inventory.BootID(); err != nil {
		return err
	}
	if len(args) > 3 {
		g.Policy = request.Policy(args[3])
	}
	if len(args) > 4 {
		if err := g.Slices[0].Priority.UnmarshalText([]byte(args[4])); err != nil {
			return err
		}
	}
	dir := rundir.Dir(ts.MkAbs("run"))
	tx, err := state.Store{Dir: dir, BootID: g.BootID, Log: hclog.NewNullLogger()}.Begin(context.Background())
	if err != nil {
		return err
	}
	defer tx.End()
	tx.Put(g.Job, []state.Slice{{Job: g.Job, UID: g.UID, Since: state.MillisOf(g.Since), Slice: g.Slices[0]}})
	if err := tx.Commit(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir.Job(g.Job), 0o755); err != nil {
		return err
	}
	if err := grant.Write(dir.Grant(g.Job), g); err != nil {
		return err
	}
	if err := os.MkdirAll(dir.Pages(g.Job), 0o755); err != nil {
		return err
	}
	if err := ledger.Create(dir.Ledger(g.Job), g.Job, 1, g.UID, g.GID); err != nil {
		return err
	}
	page, err := os.OpenFile(dir.Ledger(g.Job), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer page.Close()
	// struct vgpu_ledger: of 16 devices each, used_bytes, peak_bytes and refusals follow the header.
	for offset, value := range map[int64]uint64{64: 100 << 20, 64 + 128: uint64(g.Slices[0].MemMiB) << 20, 64 + 256: 3} {
		if _, err := page.WriteAt(binary.LittleEndian.AppendUint64(nil, value), offset); err != nil {
			return err
		}
	}
	return putCount(dir, g.Job, ledger.TimeDevice{BusyNs: 810e9, LookedNs: uint64(ledger.TimeNow() + time.Hour)}) // vgpud looks, however long this machine takes to see it
}

// step JOB STEP [ASKED]: a step of a job starts.
func prepareStep(ts *testscript.TestScript, args []string) error {
	dir, job, step, err := stepOf(ts, args)
	if err != nil {
		return err
	}
	g, err := grant.Read(dir.Grant(job))
	if err != nil {
		return err
	}
	var asked request.Request
	if len(args) > 2 {
		if asked, err = request.Decode(args[2]); err != nil {
			return err
		}
	}
	_, err = grant.Prepare(dir, g, step, args[1], asked, nil)
	return err
}

// limits JOB STEP MIB PERCENT JOB-MIB JOB-PERCENT GENERATION: what a step's processes see.
func compareLimits(ts *testscript.TestScript, args []string) error {
	dir, job, _, err := stepOf(ts, args)
	if err != nil {
		return err
	}
	page, err := ledger.ReadLimits(filepath.Join(dir.Step(job, args[1]), ledger.LimitsFile))
	if err != nil {
		return err
	}
	d := page.Devices[0]
	got := fmt.Sprint(d.StepMemBytes>>20, d.SMPercent, d.JobMemBytes>>20, d.JobSMPercent, page.Generation)
	if want := strings.Join(args[2:], " "); got != want {
		return fmt.Errorf("the limits page has %s, want %s", got, want)
	}
	return nil
}

func stepOf(ts *testscript.TestScript, args []string) (dir rundir.Dir, job, step uint32, err error) {
	id, err1 := strconv.ParseUint(args[0], 10, 32)
	number, err2 := strconv.ParseUint(args[1], 10, 32)
	return rundir.Dir(ts.MkAbs("run")), uint32(id), uint32(number), errors.Join(err1, err2)
}

// crash POINT ARGUMENT…: vgpuctl must die at a crash point.
func crash(ts *testscript.TestScript, _ bool, args []string) {
	self, err := os.Executable()
	ts.Check(err)
	cmd := &exec.Cmd{Path: self, Args: append([]string{"vgpuctl"}, args[1:]...), Dir: ts.MkAbs("."), Stderr: os.Stderr,
		Env: append(os.Environ(), "CRASH="+args[0])}
	err = cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		ts.Fatalf("vgpuctl did not die at %s: %v", args[0], err)
	}
}

// refused JOB REASON: a job that was given nothing.
func writeRefusal(ts *testscript.TestScript, args []string) error {
	g, err := sampleGrant(args[0], "3000", "30")
	if err != nil {
		return err
	}
	g.Slices, g.Refusal = nil, args[1]
	dir := rundir.Dir(ts.MkAbs("run"))
	if err := os.MkdirAll(dir.Job(g.Job), 0o755); err != nil {
		return err
	}
	return grant.Write(dir.Grant(g.Job), g)
}

// record JOB AGE: an ended job whose report waits.
func writeRecord(ts *testscript.TestScript, args []string) error {
	g, err := sampleGrant(args[0], "3000", "30")
	if err != nil {
		return err
	}
	since, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	end := time.Now().Add(-since)
	peak := usage.StepFigures{PeakMiB: new(int64(2998)), Refusals: new(uint64(1))}
	return usage.Write(rundir.Spool(ts.MkAbs("spool")), usage.Record{
		Job: g.Job, Node: g.Node, UID: g.UID, Submitted: time.Unix(90, 0), Start: end.Add(-time.Minute), End: end, Request: g.Request, Entitlement: g.Entitlement,
		Devices: []usage.Device{{Device: gpuA.UUID, MemMiB: 3000, SMPercent: 30, Figures: usage.Figures{StepFigures: peak, Time: usage.Time{GPUSeconds: new(12.5)}}}},
		Steps:   []usage.Step{{Step: "batch", Devices: []usage.StepFigures{peak}}},
	})
}

// expectCode is `code N command…`: the command must end with exactly this exit code.
func expectCode(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = strconv.Itoa(exit.ExitCode())
	} else {
		ts.Check(err)
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}
