// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

// The scripts know `prolog` and `epilog`: the programs with the flags that keep them in $WORK, and
// dead at the crash point that CRASH names. The epilog is built from its own folder.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "prolog" {
		privatemounts.Enter()
	}
	testscript.Main(m, map[string]func(){
		"prolog": func() {
			if at := os.Getenv("CRASH"); at != "" {
				crashpoint.Set(func(name string) {
					if name == at {
						syscall.Kill(os.Getpid(), syscall.SIGKILL)
					}
				})
			}
			work := os.Getenv("WORK")
			os.Exit(command(append([]string{
				"--config", filepath.Join(work, "config.yaml"), "--self-dir", filepath.Join(work, "self"),
				"--preload-file", filepath.Join(work, "ld.so.preload"), "--gres-tool", filepath.Join(work, "vgpu-gres"),
			}, os.Args[1:]...)))
		},
	})
}

// scontrol stands in for the controller: controller/ID is what it says about a job, controller/ID.next what it says later. Host lists
// have no brackets here.
const scontrol = `#!/bin/sh
cd %s || exit 1
case "$1" in
requeue)
	if [ -e requeue-fails ]; then echo "$(cat requeue-fails)" >&2; exit 1; fi
	echo "$2 $3" >> requeued
	if [ -e on-requeue ]; then . ./on-requeue; fi;;
update)
	shift; echo "$*" >> updates
	case "$*" in *State=DRAIN*) echo IDLE+DRAIN > node-state; echo "Reason=${*#*Reason=} [root@2026-11-27T04:35:08]" > node-reason;; *State=RESUME*) rm -f node-state node-reason;; esac;;
show)
	echo "$3" | tr , '\n';;
-o)
	echo "NodeName=$4 Arch=x86_64 CPUTot=1 OS=Linux State=$(cat node-state 2>/dev/null || echo IDLE) ThreadsPerCore=1 $(cat node-reason 2>/dev/null)";;
*)
	if [ -e away ]; then echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1; fi
	if [ ! -e controller/"$5" ]; then echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; fi
	cat controller/"$5"
	if [ -e controller/"$5".next ]; then mv controller/"$5".next controller/"$5"; fi;;
esac
`

// squeue says what jobs asked for, or where they stand: ID|STATE|REASON|NODES.
const squeue = `#!/bin/sh
cd %s || exit 1
case "$*" in
*%%T*) if [ -e standings ]; then cat standings; fi;;
*) exec cat asked;;
esac
`

// sinfo says which nodes there are: NAME|STATE|FEATURES|GRES.
const sinfo = `#!/bin/sh
exec cat %s/nodes
`

const configuration = `run_dir: %[1]s/run/%%n
spool_dir: %[1]s/spool
log: {file: %[1]s/log, level: debug}
slurm: {scontrol: %[1]s/scontrol, squeue: %[1]s/squeue, slurmd_spool_dir: %[1]s/slurmd, controller_timeout: 60s}
report: {enabled: false}
`

func setup(env *testscript.Env, epilog string) error {
	work := env.WorkDir
	for _, dir := range []string{"controller", "run", "slurmd", "bin"} {
		if err := os.Mkdir(filepath.Join(work, dir), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"scontrol": fmt.Sprintf(scontrol, work), "squeue": fmt.Sprintf(squeue, work), "sinfo": fmt.Sprintf(sinfo, work), "config.yaml": fmt.Sprintf(configuration, work),
		"bin/epilog": fmt.Sprintf("#!/bin/sh\nexec %s --config %s/config.yaml \"$@\"\n", epilog, work),
	} {
		mode := os.FileMode(0o755)
		if strings.HasSuffix(name, ".yaml") {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), mode); err != nil {
			return err
		}
	}
	env.Defer(func() { privatemounts.Clear(work) })
	env.Setenv("PATH", filepath.Join(work, "bin")+":"+env.Getenv("PATH"))
	env.Setenv("SLURMD_NODENAME", "n1")
	interposer, err := filepath.Abs("../interposer")
	if err != nil {
		return err
	}
	env.Setenv("INTERPOSER", interposer)
	env.Setenv("SLURM_JOB_UID", strconv.Itoa(os.Getuid()))
	env.Setenv("SLURM_JOB_GID", strconv.Itoa(os.Getgid()))
	env.Setenv("SLURM_JOB_RESTART_COUNT", "0")
	return nil
}

func TestScripts(t *testing.T) {
	epilog := filepath.Join(t.TempDir(), "epilog")
	if out, err := exec.Command("go", "build", "-o", epilog, "../epilog").CombinedOutput(); err != nil {
		t.Fatalf("build the epilog: %v: %s", err, out)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Setup:     func(env *testscript.Env) error { return setup(env, epilog) },
		Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"inventory": cmdInventory, "job": cmdJob, "slices": cmdSlices, "prologs": cmdPrologs, "crash": cmdCrash, "count": cmdCount, "age": cmdAge,
			"step": cmdStep, "mounted": cmdMounted, "tmpfs": cmdTmpfs, "build": cmdBuild, "fill": cmdFill,
		},
	})
}

// condition: [mounts] where tests may mount.
func condition(name string) (bool, error) {
	if name != "mounts" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return privatemounts.Entered(), nil
}

func runDir(ts *testscript.TestScript) rundir.Dir {
	return rundir.Dir(ts.MkAbs("run/" + ts.Getenv("SLURMD_NODENAME")))
}

// cmdInventory writes an inventory of this boot: inventory MIB...
func cmdInventory(ts *testscript.TestScript, _ bool, args []string) {
	bootID, err := inventory.BootID()
	ts.Check(err)
	inv := device.Inventory{BootID: bootID}
	for i, arg := range args {
		mib, err := strconv.ParseInt(arg, 10, 64)
		ts.Check(err)
		inv.GPUs = append(inv.GPUs, device.GPU{UUID: device.UUID(fmt.Sprintf("GPU-%08d", i)), Index: device.NVMLIndex(i),
			Minor: device.Minor(i + 1), Type: "h200", MemMiB: mib})
	}
	ts.Check(os.MkdirAll(string(runDir(ts)), 0o755))
	ts.Check(inventory.Write(runDir(ts).Inventory(), inv))
}

// cmdJob tells the controller about a job on n1: job ID GRES [KEY=VALUE...]. The rest is as the
// real controller says it.
func cmdJob(ts *testscript.TestScript, _ bool, args []string) {
	text, err := os.ReadFile("../internal/slurm/testdata/no-gres.txt")
	ts.Check(err)
	answer := string(text)
	replace := func(from, to string) {
		if !strings.Contains(answer, from) {
			ts.Fatalf("the controller's answer has no %q", from)
		}
		answer = strings.Replace(answer, from, to, 1)
	}
	replace("JobId=22 ", "JobId="+args[0]+" ")
	replace("Nodes=n08 ", "Nodes=n[1-2] ")
	replace("GRES= MinCPUs", "GRES="+args[1]+" MinCPUs")
	replace("UserId=root(0)", fmt.Sprintf("UserId=ann(%d)", os.Getuid()))
	replace("SubmitTime=", "SubmitTime=1795230580 Was=") // seconds are what it is asked for
	defaults := map[string]string{"BatchFlag": "1", "ExcNodeList": "(null)", "Requeue": "1", "Restarts": "0", "JobState": "RUNNING", "OverSubscribe": "OK", "JOB_GRES": "(null)",
		"DelayBoot": "00:00:00", "WorkDir": "/home/ann", "QOS": "(null)", "Partition": "p", "JobName": "j.sh", "SubmitTime": "1795230580", "UserId": fmt.Sprintf("ann(%d)", os.Getuid())}
	for _, arg := range args[2:] {
		key, value, _ := strings.Cut(arg, "=")
		if key == "Part" { // of an array, or of a heterogeneous job
			replace(" JobName=", " "+value+" JobName=")
			continue
		}
		replace(" "+key+"="+defaults[key]+" ", " "+key+"="+value+" ")
	}
	ts.Check(os.WriteFile(ts.MkAbs("controller/"+args[0]), []byte(answer), 0o644))
}

// cmdSlices compares the state: slices [JOB.RESTART@GPU=MIB...].
func cmdSlices(ts *testscript.TestScript, _ bool, want []string) {
	bootID, err := inventory.BootID()
	ts.Check(err)
	current, err := state.Store{Dir: runDir(ts), BootID: bootID, Log: hclog.NewNullLogger()}.Read()
	ts.Check(err)
	got := []string{}
	for _, s := range current.Slices {
		got = append(got, fmt.Sprintf("%d.%d@%d=%d", s.Job, s.Restart, s.Index, s.MemMiB))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		ts.Fatalf("the state has %v, want %v", got, want)
	}
}

// cmdPrologs runs the prologs of many jobs at once: prologs FIRST LAST. All must succeed.
func cmdPrologs(ts *testscript.TestScript, _ bool, args []string) {
	first, err := strconv.Atoi(args[0])
	ts.Check(err)
	last, err := strconv.Atoi(args[1])
	ts.Check(err)
	var done sync.WaitGroup
	failures := make([]error, last-first+1)
	for id := first; id <= last; id++ {
		done.Go(func() { failures[id-first] = runProlog(ts, "SLURM_JOB_ID="+strconv.Itoa(id)) })
	}
	done.Wait()
	for _, err := range failures {
		ts.Check(err)
	}
}

// cmdCrash runs a prolog that must die at a crash point: crash NAME.
func cmdCrash(ts *testscript.TestScript, _ bool, args []string) {
	err := runProlog(ts, "CRASH="+args[0])
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		ts.Fatalf("the prolog did not die at %s: %v", args[0], err)
	}
}

func runProlog(ts *testscript.TestScript, env ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{Path: self, Args: []string{"prolog"}, Stderr: os.Stderr}
	for _, name := range []string{"WORK", "PATH", "SLURMD_NODENAME", "SLURM_JOB_ID", "SLURM_JOB_UID", "SLURM_JOB_GID",
		"SLURM_JOB_RESTART_COUNT", "SPANK_VGPU_REQUEST", "SPANK_VGPU_DEFAULTS"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd.Run()
}

// cmdCount counts what a pattern matches: count N GLOB.
func cmdCount(ts *testscript.TestScript, _ bool, args []string) {
	found, err := filepath.Glob(ts.MkAbs(args[1]))
	ts.Check(err)
	if strconv.Itoa(len(found)) != args[0] {
		ts.Fatalf("%s matches %d: %v", args[1], len(found), found)
	}
}

// cmdAge makes a job's slices older than the time in which nobody doubts them: age JOB.
func cmdAge(ts *testscript.TestScript, _ bool, args []string) {
	bootID, err := inventory.BootID()
	ts.Check(err)
	tx, err := state.Store{Dir: runDir(ts), BootID: bootID, Log: hclog.NewNullLogger()}.Begin(context.Background())
	ts.Check(err)
	defer tx.End()
	old := tx.Drop(func(run state.Run) bool { return strconv.Itoa(int(run.Job)) == args[0] })
	for i := range old {
		old[i].Since = state.MillisOf(old[i].Since.Time().AddDate(0, 0, -1))
	}
	tx.Put(old[0].Job, old)
	ts.Check(tx.Commit())
}

// cmdStep has a job's step run until the script ends: slurmstepd listens on a socket named after it.
func cmdStep(ts *testscript.TestScript, _ bool, args []string) {
	listener, err := net.Listen("unix", ts.MkAbs("slurmd/n1_"+args[0]+".4294967292"))
	ts.Check(err)
	ts.Defer(func() { listener.Close() })
}

// cmdBuild makes the files of a build, of which the library says how long a ledger it needs: build FOLDER.
func cmdBuild(ts *testscript.TestScript, _ bool, args []string) {
	folder := ts.MkAbs(args[0])
	for _, name := range grant.BuildFiles() {
		ts.Check(os.WriteFile(filepath.Join(folder, name), nil, 0o755))
	}
	ts.Check(ts.Exec("cc", "-shared", "-fPIC", "-I"+ts.Getenv("INTERPOSER"), "-o", filepath.Join(folder, grant.LibraryFile),
		filepath.Join(ts.Getenv("INTERPOSER"), "api", "layout.c")))
}

// cmdTmpfs mounts a small file system on the run directory, which must be empty: tmpfs OPTIONS.
func cmdTmpfs(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(unix.Mount("tmpfs", ts.MkAbs("run"), "tmpfs", 0, args[0]+",mode=755"))
}

// cmdMounted counts the file systems of jobs: mounted N.
func cmdMounted(ts *testscript.TestScript, _ bool, args []string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	ts.Check(err)
	if n := strings.Count(string(mounts), " "+runDir(ts).AllPages()+"/"); strconv.Itoa(n) != args[0] {
		ts.Fatalf("%d file systems of jobs are mounted, want %s:\n%s", n, args[0], mounts)
	}
}

// cmdFill writes into a file until the file system is full, or makes files in a folder until none can
// be made: fill FILE|FOLDER.
func cmdFill(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		for i := 0; err == nil; i++ {
			err = os.WriteFile(filepath.Join(path, fmt.Sprint("filling", i)), nil, 0o644)
		}
		return
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	ts.Check(err)
	defer file.Close()
	for size := 1 << 16; size > 0; {
		if _, err := file.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

func TestAReasonIsOneShortLine(t *testing.T) {
	long := strings.Repeat("x", 300)
	for said, want := range map[string]string{"": "", "\n": "", " a\nb": "a", long: long, long + "y": long + "…", long + "\ny": long} {
		if got := firstLine([]byte(said)); got != want {
			t.Errorf("%q becomes %q", said, got)
		}
	}
}
