// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

func health(t *testing.T, node string) string {
	t.Helper()
	return run(t, root, "vgpuctl --config "+c.ConfigOf(node)+" --node "+node+" health").String()
}

// fallsOff has the GPU of a slice fall off the bus until the test ends. All nodes have these GPUs, and vgpud of another one may look meanwhile.
func fallsOff(t *testing.T, s slice) {
	t.Helper()
	t.Cleanup(func() { // when simgpu.conf is as it was
		for node := range strings.FieldsSeq(run(t, root, "sinfo -h -N -o %N").Stdout) {
			health(t, node)
		}
	})
	replaced(t, c.Home.Path("sim", "simgpu.d", "simgpu.conf"), func(text string) string { return text + fmt.Sprintf("device%d.lost=1\n", s.Index) })
}

// A GPU falls off the bus under a job: it is said everywhere, new jobs go to the other one, whose slices are as they were, and the node stays.
func TestAFailedGPUTakesNoNewSlices(t *testing.T) {
	begin(t)
	const asked = "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-place=spread"
	a, releaseA := holding(t, one, asked)
	b, releaseB := holding(t, two, asked)
	failed, well := slicesOf(t, a)[0], slicesOf(t, b)[0]
	if failed.Device == well.Device {
		t.Fatalf("not spread: %+v %+v", failed, well)
	}
	fallsOff(t, failed)
	if said := health(t, "n1"); !strings.Contains(said, fmt.Sprintf("GPU %d (%s): failed at ", failed.Index, failed.Device)) {
		t.Errorf("vgpuctl health: %s", said)
	}
	if out := batch(t, two, asked, "nvidia-smi --query-gpu=uuid --format=csv,noheader"); strings.TrimSpace(out) != string(well.Device) {
		t.Errorf("a new job has %s, want %s", out, well.Device)
	}
	if result := run(t, one, "srun --jobid="+a+" --overlap vgpu-fill --upto 100"); result.Code == 0 {
		t.Errorf("a new step on the failed GPU: %s", result)
	} else {
		t.Log(result)
	}
	if result := run(t, one, "srun --gres=vgpu:2 --vgpu-mem=1000 true"); !strings.Contains(result.Stderr, fmt.Sprintf("GPU %d is out of service (handle: the GPU has fallen off the bus", failed.Index)) {
		t.Errorf("a job that needs both GPUs: %s", result)
	}
	for job, slice := range map[string]slice{a: failed, b: well} {
		if now := slicesOf(t, job); len(now) != 1 || now[0] != slice {
			t.Errorf("job %s has %+v, had %+v", job, now, slice)
		}
	}
	if said := run(t, two, "srun --jobid="+b+" --overlap vgpu-fill --upto 2000"); said.Code != 0 {
		t.Errorf("the neighbour: %s", said)
	}
	if said := run(t, root, "scontrol -o show node n1").Stdout; strings.Contains(said, "DRAIN") {
		t.Errorf("by counts one failed GPU drains the node: %s", said)
	}
	for command, says := range map[string]string{
		tool("n1", "status"):                 "lost: handle: the GPU has fallen off the bus",
		metricsOf("n1", ""):                  `state="lost"`,
		"cat " + c.Home.Path("log/vgpu.log"): "a GPU has failed, and takes no new slices",
	} {
		if said := run(t, root, command); !strings.Contains(said.Stdout, says) {
			t.Errorf("%s does not say %q: %s", command, says, said)
		} else if strings.Contains(command, "vgpuctl") {
			t.Log(said.Stdout)
		}
	}
	// The counts of Slurm's files are right for a GPU that comes back.
	said := run(t, root, tool("n1", "doctor")).Stdout
	if !strings.Contains(said, fmt.Sprintf("fail  NVML: GPU %d (%s): handle: ", failed.Index, failed.Device)) || strings.Contains(said, "this node has") {
		t.Errorf("doctor: %s", said)
	}
	releaseA()
	releaseB()
	awaitState(t, a, "COMPLETED")
	awaitState(t, b, "COMPLETED")
}
