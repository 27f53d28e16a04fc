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

// A task that enters a container of another job would have that job's slice, or the whole GPU.
func TestATaskInAnotherJobsContainerDoesNotStart(t *testing.T) {
	for name, options := range map[string]string{"with a slice": "--gres=vgpu:1 --vgpu-mem=7000", "without": ""} {
		t.Run(name, func(t *testing.T) {
			begin(t)
			withEnter(t, true)
			pid := filepath.Join(one.Home, "inside.pid")
			t.Cleanup(func() { os.Remove(pid) })
			other := submit(t, one, options, entering(t, ",$PWD:/mnt")+`srun -n1 /bin/sh -c 'echo $$ >/mnt/inside.pid; until [ -e /mnt/inside.end ]; do sleep 0.1; done; rm /mnt/inside.end'`)
			until(t, "the other job's container", 30*time.Second, func() error {
				data, err := os.ReadFile(pid)
				if err == nil && !strings.HasSuffix(string(data), "\n") {
					err = os.ErrNotExist
				}
				return err
			})
			out := batch(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB), "exec 2>&1\nENTER_JOIN=$(cat inside.pid) srun -n1 "+fillInside+"\ntrue")
			if taken.MatchString(out) || !strings.Contains(out, "the container is another job's") {
				t.Errorf("it has what is not its own:\n%s", out)
			}
			ok(t, one, "touch inside.end")
			finish(t, one, other)
		})
	}
}
