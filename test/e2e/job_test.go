// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

const (
	gpuMiB = 143771 // of each of the node's two GPUs
	gpus   = 2
	// Enough for 64 jobs at once.
	slicesPerGPU = 40
)

// begin makes a test start and end with an idle cluster: no jobs, no slices, no node in doubt.
func begin(t *testing.T) {
	t.Helper()
	settle(t)
	keepLogs(t)
	t.Cleanup(func() { settle(t) })
}

func settle(t *testing.T) {
	t.Helper()
	queue := func() error {
		result := run(t, root, "squeue -h -o '%i %T %r'")
		if result.Stdout != "" || result.Code != 0 {
			return fmt.Errorf("%s", result)
		}
		return nil
	}
	if queue() != nil { // most tests end their jobs themselves
		for _, u := range append([]cluster.User{root}, c.Users...) {
			run(t, root, "scancel --user="+u.Name)
		}
		until(t, "an empty queue", 60*time.Second, queue)
	}
	nodeIsUp(t)
	for _, node := range c.Nodes { // of a waiting job that was cancelled the node hears with the next event
		if _, err := os.Stat(c.Home.Path("vgpu-spool", node, "waiting.json")); err == nil {
			ok(t, root, "vgpuctl --config "+c.ConfigPath()+" --node "+node+" sweep")
		}
	}
	if t.Failed() { // what it left is no other test's failure
		if _, err := impatient(t).Sweep(context.Background()); err != nil {
			t.Errorf("sweep: %v", err)
		}
	}
	until(t, "no slices", 30*time.Second, func() error {
		if held := stateSlices(t); len(held) > 0 {
			return fmt.Errorf("slices are left: %+v", held)
		}
		if names := jobFolders(t); len(names) > 0 {
			return fmt.Errorf("job folders are left: %v", names)
		}
		return nil
	})
}

// nodeIsUp fails the test when Slurm took the node away: nothing that a job does may do that. The tests after it have the
// node again.
func nodeIsUp(t *testing.T) {
	t.Helper()
	back := true
	defer func() {
		for _, node := range c.Nodes {
			if back {
				run(t, root, "scontrol update nodename="+node+" state=resume")
			}
		}
	}()
	until(t, "the node", 30*time.Second, func() error {
		state := run(t, root, "sinfo -h -N -o '%T %E'").Stdout
		if strings.Contains(state, "drain") || strings.Contains(state, "down") || strings.Contains(state, "*") {
			return fmt.Errorf("the node is %s", state)
		}
		return nil
	})
	back = false
}

// until waits for a state. The deadline only ends a test that would wait for ever: it says what is usual, and a
// busy machine gets two minutes all the same.
func until(t *testing.T, what string, deadline time.Duration, ready func() error) {
	t.Helper()
	deadline = max(deadline, 2*time.Minute)
	end := time.Now().Add(deadline)
	for {
		err := ready()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, deadline, err)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// run runs a shell command line as a user, for at most four minutes.
func run(t *testing.T, u cluster.User, line string) cluster.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	result := c.Run(ctx, u, line)
	if ctx.Err() != nil {
		t.Fatalf("%s: does not end\n%s", line, result)
	}
	return result
}

// ok runs a command line that must succeed.
func ok(t *testing.T, u cluster.User, line string) cluster.Result {
	t.Helper()
	result := run(t, u, line)
	if result.Code != 0 {
		t.Fatalf("%s", result)
	}
	return result
}

var submitted = regexp.MustCompile(`Submitted batch job (\d+)`)

// submit runs a batch script with options and returns the job's id.
func submit(t *testing.T, u cluster.User, options, script string) string {
	t.Helper()
	path := filepath.Join(u.Home, "script.sh")
	if !strings.HasPrefix(script, "#!") {
		script = "#!/bin/bash\n" + script + "\n"
	}
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	result := ok(t, u, "sbatch "+options+" script.sh")
	match := submitted.FindStringSubmatch(result.Stdout)
	if match == nil {
		t.Fatalf("no job: %s", result)
	}
	return match[1]
}

func state(t *testing.T, job string) string {
	t.Helper()
	return strings.TrimSpace(run(t, root, "squeue -h -t all -o %T -j "+job).Stdout)
}

// awaitState waits for a job's state, and fails at once when the job ended in another.
func awaitState(t *testing.T, job string, want ...string) {
	t.Helper()
	until(t, "job "+job+" to be "+strings.Join(want, " or "), 60*time.Second, func() error {
		now := state(t, job)
		switch {
		case slices.Contains(want, now):
			return nil
		case slices.Contains([]string{"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}, now):
			t.Fatalf("job %s is %s, not %s; its output:\n%s%s", job, now, strings.Join(want, " or "),
				output(t, one, job), output(t, two, job))
		}
		return fmt.Errorf("it is %s", now)
	})
}

// finish waits until a job ended well and returns what it wrote.
func finish(t *testing.T, u cluster.User, job string) string {
	t.Helper()
	awaitState(t, job, "COMPLETED")
	return output(t, u, job)
}

// output is what a job wrote, less what srun says where the step before it is not quite over for slurmctld.
func output(t *testing.T, u cluster.User, job string) string {
	t.Helper()
	data, _ := os.ReadFile(filepath.Join(u.Home, "slurm-"+job+".out"))
	return retried.ReplaceAllString(string(data), "")
}

// batch submits, waits for a good end, and returns what the job wrote.
func batch(t *testing.T, u cluster.User, options, script string) string {
	t.Helper()
	return finish(t, u, submit(t, u, options, script))
}

// slice is what the node's state file says of one.
type slice struct {
	Job       uint32
	Device    string
	Index     int
	MemMiB    int
	SMPercent int
}

func runDir(elem ...string) string {
	return c.Home.Path(append([]string{"run", "n1"}, elem...)...)
}

func stateSlices(t *testing.T) []slice {
	t.Helper()
	held, err := c.Slices("n1")
	if err != nil {
		t.Fatal(err)
	}
	var all []slice
	for _, s := range held {
		all = append(all, slice{Job: s.Job, Device: string(s.Device), Index: int(s.Index), MemMiB: int(s.MemMiB), SMPercent: s.SMPercent})
	}
	return all
}

// slicesOf waits until a job's slices stand in the state file.
func slicesOf(t *testing.T, job string) (held []slice) {
	t.Helper()
	until(t, "slices of job "+job, 30*time.Second, func() error {
		held = nil
		for _, s := range stateSlices(t) {
			if fmt.Sprint(s.Job) == job {
				held = append(held, s)
			}
		}
		if len(held) == 0 {
			return fmt.Errorf("it has none; it is %s", state(t, job))
		}
		return nil
	})
	return held
}

func jobFolders(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(runDir("jobs"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// openDir is a folder of the test's in which jobs can see files, also those with a /tmp of their own.
func openDir(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp(c.Home.Path(), "open-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// holding submits a job that keeps running until release is called or the test ends.
func holding(t *testing.T, u cluster.User, options string) (job string, release func()) {
	t.Helper()
	return holdingAfter(t, u, options, "echo started")
}

// holdingAfter is holding with something to do before.
func holdingAfter(t *testing.T, u cluster.User, options, script string) (job string, release func()) {
	t.Helper()
	gate := filepath.Join(openDir(t), "gate")
	job = submit(t, u, options, script+"\nwhile [ ! -e "+gate+" ]; do sleep 0.1; done; echo released")
	return job, func() {
		if err := os.WriteFile(gate, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// took is how much vgpu-fill got before it was refused.
func took(t *testing.T, out string) int {
	t.Helper()
	match := regexp.MustCompile(`CUDA_ERROR_OUT_OF_MEMORY after (\d+) MiB`).FindStringSubmatch(out)
	if match == nil {
		t.Fatalf("no CUDA_ERROR_OUT_OF_MEMORY in:\n%s", out)
	}
	var mib int
	fmt.Sscan(match[1], &mib)
	return mib
}

// contextMiB is more than a process's CUDA context takes of its slice.
const contextMiB = 700

// wantLimit checks that a program of the job was stopped at its limit, and not much before.
func wantLimit(t *testing.T, out string, limitMiB int) {
	t.Helper()
	if got := took(t, out); got > limitMiB || got < limitMiB-contextMiB-64 {
		t.Errorf("it took %d MiB of a slice of %d MiB:\n%s", got, limitMiB, out)
	}
}
