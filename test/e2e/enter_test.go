// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withEnter puts the plugin that runs tasks in containers before or after ours in plugstack.conf, for this test.
func withEnter(t *testing.T, before bool) {
	t.Helper()
	needStrict(t)
	plugin := c.Home.Path("lib", "enter.so")
	ok(t, root, "install -m 755 "+filepath.Join(c.Build, "test-enter", "enter.so")+" "+plugin)
	plugstack := c.Home.Path("etc", "plugstack.conf")
	ours, err := os.ReadFile(plugstack)
	if err != nil {
		t.Fatal(err)
	}
	lines := string(ours) + "required " + plugin + "\n"
	if before {
		lines = "required " + plugin + "\n" + string(ours)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(plugstack, ours, 0o644); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(plugstack, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
}

// entering are the variables with which srun's tasks run in the image.
func entering(t *testing.T, more string) string {
	t.Helper()
	binds := strings.TrimSuffix(given("%s:%s,"), ",")
	return "ENTER_ROOT=" + image(t, one) + " ENTER_BINDS=" + binds + more + " "
}

// enrootFstab are the mounts that the file for enroot makes.
func enrootFstab(t *testing.T) (binds string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Source, "packaging/containers/enroot.fstab"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Fields(line); len(cells) == 4 && !strings.HasPrefix(line, "#") {
			binds += "," + cells[0] + ":" + cells[1]
		}
	}
	return binds
}

func TestAPluginThatEntersContainers(t *testing.T) {
	for name, before := range map[string]bool{"before ours": true, "after ours": false} {
		t.Run(name, func(t *testing.T) {
			begin(t)
			withEnter(t, before)
			step := "srun -n1 --overlap "
			try(t, one, "touch empty", []attempt{
				{"nothing configured", entering(t, "") + step, "", limited},
				{"the preload as well", entering(t, ",/run/slurm-vgpu/self:/run/slurm-vgpu/self,/etc/ld.so.preload:/etc/ld.so.preload") + step, "", limited},
				{"an own file over the preload", entering(t, ",/etc/ld.so.preload:/etc/ld.so.preload,$PWD/empty:/etc/ld.so.preload") + step, "", limited},
				{"an own folder over ours", "mkdir -p nothing; " + entering(t, ",$PWD/nothing:/dev/slurm-vgpu") + step, "", noCUDA},
				{"root inside", entering(t, " ENTER_REMAP=1") + step, uncover, limited},
				{"read-only", entering(t, " ENTER_READONLY=1") + step, "", limited},
				{"a /dev of its own", entering(t, " ENTER_DEV=own") + step, "", noCUDA},
				{"a /dev of its own, and enroot.fstab", entering(t, enrootFstab(t)+" ENTER_DEV=own") + step, "", limited},
				{"its own messages, and enroot.fstab", entering(t, enrootFstab(t)+" ENTER_DEV=ipc") + step, "", limited},
				{"the driver by its other name, and enroot.fstab", entering(t, enrootFstab(t)+",/run/slurm-vgpu/self/libcuda-slurm-vgpu.so:"+libraryDir+"/libcuda.so.1") + step, "", limited},
			})
		})
	}
}

// Tasks of one step in two containers, and a step of fewer MiB, have what the step has.
func TestTasksInContainersShareTheirStep(t *testing.T) {
	begin(t)
	withEnter(t, true)
	out := batch(t, one, fmt.Sprintf("-n2 --gres=vgpu:1 --vgpu-mem=%d", 2*containerMiB), "exec 2>&1\n"+
		entering(t, "")+fmt.Sprintf("srun -n2 --vgpu-mem=%d ", containerMiB)+`/bin/sh -c "vgpu-fill --upto 8000 --hold 3"`+"\ntrue")
	sum := 0
	for _, match := range taken.FindAllStringSubmatch(out, -1) {
		var mib int
		fmt.Sscan(match[1], &mib)
		sum += mib
	}
	if n := strings.Count(out, "CUDA_ERROR_OUT_OF_MEMORY"); n != 2 || sum > containerMiB || sum < containerMiB-2*contextMiB-128 {
		t.Errorf("two tasks have %d MiB of a step's %d:\n%s", sum, containerMiB, out)
	}
}

// runningContainer is a job's container in which a process waits until the test ends it, and the file that names the process.
func runningContainer(t *testing.T, options, variables string) (end func()) {
	t.Helper()
	pid := filepath.Join(one.Home, "inside.pid")
	other := submit(t, one, options, variables+`srun -n1 /bin/sh -c 'echo $$ >/mnt/inside.pid; until [ -e /mnt/inside.end ]; do sleep 0.1; done; rm /mnt/inside.end'`)
	until(t, "the other job's container", 30*time.Second, func() error {
		data, err := os.ReadFile(pid)
		if err == nil && !strings.HasSuffix(string(data), "\n") {
			err = os.ErrNotExist
		}
		return err
	})
	return func() {
		ok(t, one, "touch inside.end")
		finish(t, one, other)
		os.Remove(pid)
	}
}

// A task that enters a container of another job would have that job's slice, or the whole GPU.
func TestATaskInAnotherJobsContainerDoesNotStart(t *testing.T) {
	forge := "python3 -c 'import os, struct, sys; sys.stdout.buffer.write(struct.pack(\"<5I\", 0, 0, 0, 0, int(os.environ[\"SLURM_JOB_ID\"])))' >image/run/slurm-vgpu/self/limits\n"
	for name, other := range map[string]struct{ options, prepare string }{
		"with a slice": {options: "--gres=vgpu:1 --vgpu-mem=7000"}, "without": {}, "without, with a page of the user's": {prepare: forge},
	} {
		t.Run(name, func(t *testing.T) {
			begin(t)
			withEnter(t, true)
			t.Cleanup(func() { os.Remove(filepath.Join(image(t, one), "run/slurm-vgpu/self/limits")) })
			end := runningContainer(t, other.options, entering(t, ",$PWD:/mnt"))
			out := batch(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB), "exec 2>&1\n"+other.prepare+"ENTER_JOIN=$(cat inside.pid) srun -n1 "+fillInside+"\ntrue")
			if taken.MatchString(out) || !strings.Contains(out, "the container is another job's") {
				t.Errorf("it has what is not its own:\n%s", out)
			}
			end()
		})
	}
}

// lookInside says that the task has begun, and which GPUs can be opened where the simulated driver has them outside.
func lookInside() string {
	return `/bin/sh -c "echo began; ` + strings.ReplaceAll(openNodes(), "$i", `\$i`) + `"`
}

// withNodes is a container that has the GPUs' device files by their own names, as each container with a /dev has.
func withNodes(t *testing.T, more string) string {
	ok(t, one, "mkdir -p "+image(t, one)+nodes())
	return entering(t, ","+nodes()+":"+nodes()+",$PWD:/mnt"+more)
}

// Jobs that hold whole GPUs, or none, have no limits page by which a container could be known. What is masked outside is inside.
func TestContainersOfJobsWithoutSlices(t *testing.T) {
	const whole = "-p whole "
	for name, tc := range map[string]struct {
		node    func(t *testing.T)
		options string
		opens   int
	}{
		"masked":         {func(t *testing.T) { configured(t, "without_slice: mask\n") }, "", 0},
		"closed files":   {closedFiles, "", 0},
		"no whole GPU":   {func(*testing.T) {}, whole, 0},
		"a whole GPU":    {func(*testing.T) {}, whole + "--gpus=1", 1},
		"all whole GPUs": {func(*testing.T) {}, whole + "--gpus=2", 2},
	} {
		t.Run(name, func(t *testing.T) {
			begin(t)
			tc.node(t)
			for order, before := range map[string]bool{"before ours": true, "after ours": false} {
				t.Run(order, func(t *testing.T) {
					withEnter(t, before)
					for _, variables := range []string{"", enrootFstab(t), " ENTER_DEV=own", " ENTER_DEV=ipc", " ENTER_REMAP=1"} {
						out := batch(t, one, tc.options, "exec 2>&1\n"+withNodes(t, variables)+"srun -n1 "+lookInside()+"\ntrue")
						if !strings.HasPrefix(out, "began\n") || strings.Count(out, "open ") != tc.opens {
							t.Errorf("with %q: want %d open GPUs:\n%s", variables, tc.opens, out)
						}
					}
				})
			}
		})
	}
}

// The container of a job with a GPU is no other job's, and is open to the job's other steps.
func TestAWholeGPUsContainerIsNoOtherJobs(t *testing.T) {
	begin(t)
	withEnter(t, true)
	end := runningContainer(t, "-p whole --gpus=1", withNodes(t, ""))
	defer end()
	for _, options := range []string{"-p whole", "-p whole --gpus=1"} {
		out := batch(t, one, options, "exec 2>&1\nENTER_JOIN=$(cat inside.pid) srun -n1 "+lookInside()+"\ntrue")
		if strings.Contains(out, "began") || !strings.Contains(out, "vgpu: the container is another job's: GPUs that this job does not hold are open in it") {
			t.Errorf("a job with %q has what is not its own:\n%s", options, out)
		}
	}
}

// secondStep runs a step in the running container of the job's first, which ends while the second runs.
const secondStep = `
%[1]s srun --overlap -n1 %[2]s /bin/sh -c 'echo $$ >/mnt/first.pid; until [ -e /mnt/first.end ]; do sleep 0.1; done' &
first=$!
until [ -s first.pid ]; do sleep 0.1; done
ENTER_JOIN=$(cat first.pid) srun --overlap -n1 %[3]s /bin/sh -c 'echo began; touch /mnt/second; until [ -e /mnt/first.gone ]; do sleep 0.1; done; %[4]s' &
until [ -e second ]; do sleep 0.1; done
touch first.end; wait $first; touch first.gone; wait
rm -f first.pid first.end first.gone second
`

func TestASecondStepInARunningContainer(t *testing.T) {
	begin(t)
	withEnter(t, true)
	// srun returns before its step has quite ended.
	left := "cd " + c.Home.Path("run", "n1", "jobs") + "/$SLURM_JOB_ID/steps; for i in $(seq 200); do if [ \"$(ls -A)\" = batch ]; then break; fi; sleep 0.1; done; ls -A | tr '\\n' ' '\n"
	out := batch(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB),
		"exec 2>&1\n"+fmt.Sprintf(secondStep, entering(t, ",$PWD:/mnt"), "", "", fillInside)+left)
	if got := verdict(t, out); got != limited {
		t.Errorf("a new program, once the first step has ended: %s\n%s", got, out)
	}
	if !strings.HasSuffix(out, "\nbatch ") {
		t.Errorf("folders of steps that have ended are left:\n%s", out)
	}
	out = batch(t, one, "-p whole --gpus=1", "exec 2>&1\n"+fmt.Sprintf(secondStep, withNodes(t, ""), "", "--gpus=0", openNodes()))
	if strings.Count(out, "open ") != 1 {
		t.Errorf("a job of a whole GPU: want one open GPU:\n%s", out)
	}
}
