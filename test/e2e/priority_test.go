// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// TestWhoGoesFirst: priorities come to the state, by which vgpud goes; latency is refused at submission where that is known there, else by the
// node, which goes by the controller's word.
func TestWhoGoesFirst(t *testing.T) {
	begin(t)
	const small = "--gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=10 --vgpu-priority="
	refused := func(u cluster.User, line, says string) {
		t.Helper()
		if result := run(t, u, line); result.Code == 0 || !strings.Contains(result.Stderr, "--vgpu-priority=latency: "+says) {
			t.Errorf("want %q: %s", says, result)
		}
	}
	refused(one, "srun "+small+"latency true", "this site gives it to no QOS and no partition (latency_qos, latency_partitions)")
	priorityIs(t, small+"batch", "batch", "srun --vgpu-priority=batch true 2> /dev/null && echo same\nsrun --vgpu-priority=normal true 2>&1 | grep -o 'more than.*'",
		"same\nmore than the job's priority, which is batch\n")

	configured(t, "latency_partitions: [high]\n")
	admitted(t, `{ qos = {}, partitions = { "high" } }`)
	refused(one, "srun -p vgpu "+small+"latency true", "it is for partition high, and the job is of QOS (default) in partition vgpu")
	refused(one, "SLURM_JOB_PARTITION=high srun -J 'x Partition=high' "+small+"latency true", "this node has it for partition high, and the job is of QOS ")
	priorityIs(t, "-p high "+small+"latency", "latency", "srun true 2> /dev/null && echo same\nsrun --vgpu-priority=batch true 2> /dev/null && echo lower", "same\nlower\n")
}

// priorityIs has a job run whose slice must have that priority, and its script say that.
func priorityIs(t *testing.T, options, want, script, says string) {
	t.Helper()
	job, release := holdingAfter(t, one, options, script)
	slicesOf(t, job)
	all, err := c.Slices("n1")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if fmt.Sprint(s.Job) == job && s.Priority.String() != want {
			t.Errorf("%s: the state has %s", options, s.Priority)
		}
	}
	release()
	if out := finish(t, one, job); !strings.Contains(out, says) {
		t.Errorf("%s: %s", options, out)
	}
}

// admitted lets cluster.lua say who may have slices of priority latency, until the test ends.
func admitted(t *testing.T, latency string) {
	t.Helper()
	path := c.Home.Path("etc", "cluster.lua")
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, was, 0o644); err != nil {
			t.Error(err)
		}
	})
	is := strings.Replace(string(was), "latency = { qos = {  }, partitions = {  } },", "latency = "+latency+",", 1)
	if is == string(was) {
		t.Fatalf("it does not say that nobody may:\n%s", was)
	}
	if err := os.WriteFile(path, []byte(is), 0o644); err != nil {
		t.Fatal(err)
	}
}
