// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// accountedRun is a row of the accounting database.
type accountedRun struct {
	state, nodes string
	usage
}

// accountedRuns are the rows of a job, one for each run; an error says that slurmdbd does not answer yet.
func accountedRuns(t *testing.T, job string) (runs []accountedRun, err error) {
	t.Helper()
	const end = "\x1e"
	result := run(t, root, "sacct -D -X -n -P --delimiter="+end+" -o State,NodeList,AdminComment -j "+job)
	if result.Code != 0 {
		return nil, fmt.Errorf("%s", result)
	}
	for line := range strings.Lines(result.Stdout) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), end)
		if len(cells) != 3 {
			t.Fatalf("sacct printed %q", line)
		}
		row := accountedRun{state: cells[0], nodes: cells[1]}
		if cells[2] != "" {
			if err := json.Unmarshal([]byte(cells[2]), &row.usage); err != nil {
				t.Fatalf("%s: %v", cells[2], err)
			}
		}
		runs = append(runs, row)
	}
	return runs, nil
}

// TestEachRunIsAccountedInItsOwnRow: three runs on two nodes, of which slurmdbd hears only when all are over. By
// the job's id it would take all reports for the last run's.
func TestEachRunIsAccountedInItsOwnRow(t *testing.T) {
	begin(t)
	if err := c.StopDaemon("slurmdbd", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	stopped := true
	start := func() {
		if stopped {
			stopped = false
			if err := c.StartDaemon("slurmdbd"); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(start)
	began, gate := filepath.Join(one.Home, "runs-began"), filepath.Join(openDir(t), "gate")
	t.Cleanup(func() { _ = os.Remove(began) })
	job := submit(t, one, "-p all -x n2 --gres=vgpu:1 --vgpu-mem=3000",
		"echo $SLURMD_NODENAME >> "+began+"; until [ -e "+gate+" ]; do sleep 0.1; done")
	want := []string{"n1", "n2", "n1"}
	for i, node := range want {
		// The job is RUNNING before its prolog is; a run whose prolog never granted it a slice has used none.
		until(t, fmt.Sprintf("run %d on %s", i, node), 90*time.Second, func() error {
			text, _ := os.ReadFile(began) // not there before the first run
			if ran := strings.Fields(string(text)); !slices.Equal(ran, want[:i+1]) {
				return fmt.Errorf("it ran on %v; it is %s", ran, state(t, job))
			}
			return nil
		})
		if i == len(want)-1 {
			break
		}
		requeueElsewhere(t, job, node)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	finish(t, one, job)
	start()
	runs := awaitReports(t, job, len(want))
	for i, row := range runs {
		state := "REQUEUED"
		if i == len(want)-1 {
			state = "COMPLETED"
		}
		if slices := row.VGPU.Nodes[want[i]]; row.state != state || row.nodes != want[i] || len(row.VGPU.Nodes) != 1 || len(slices) != 1 || slices[0].MemMiB != 3000 {
			t.Errorf("run %d on %s is accounted as %+v", i, want[i], row)
		}
	}
}

func requeueElsewhere(t *testing.T, job, node string) {
	t.Helper()
	ok(t, root, "scontrol requeue "+job)
	until(t, "the job to be pending", 60*time.Second, func() error {
		// It is told where to go while it cannot start yet.
		if result := run(t, root, "scontrol update jobid="+job+" ExcNodeList="+node); result.Code != 0 {
			return fmt.Errorf("%s", result)
		}
		return nil
	})
}

// awaitReports waits until each of so many runs has its report, and returns them.
func awaitReports(t *testing.T, job string, count int) (runs []accountedRun) {
	t.Helper()
	until(t, "the report of each run", 120*time.Second, func() (err error) {
		if runs, err = accountedRuns(t, job); err != nil || len(runs) != count {
			return fmt.Errorf("%d rows: %+v, %v", len(runs), runs, err)
		}
		for i, row := range runs {
			if len(row.VGPU.Nodes) == 0 {
				return fmt.Errorf("run %d has no report: %+v", i, runs)
			}
		}
		return nil
	})
	return runs
}

// TestARefusedRunIsAccountedToo: a user who asks sacct for all runs (-D) sees why his job went back into the queue.
func TestARefusedRunIsAccountedToo(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t)
	job := submit(t, two, "--gres=vgpu:1 --vgpu-mem=60000", seen)
	until(t, "the refusal in the row of its run", 90*time.Second, func() error {
		runs, err := accountedRuns(t, job)
		if i := slices.IndexFunc(runs, func(row accountedRun) bool { return row.state == "REQUEUED" && len(row.VGPU.Refusals) == 1 }); i < 0 {
			return fmt.Errorf("%+v, %v", runs, err)
		}
		return nil
	})
	releaseOne()
	finish(t, two, job)
	until(t, "the last run's report", 60*time.Second, func() error {
		runs, err := accountedRuns(t, job)
		if err != nil || len(runs) == 0 {
			return fmt.Errorf("%d rows, %v", len(runs), err)
		}
		if last := runs[len(runs)-1]; last.state != "COMPLETED" || len(last.VGPU.Nodes["n1"]) != 1 || len(last.VGPU.Refusals) != 0 {
			return fmt.Errorf("%+v", runs)
		}
		return nil
	})
	releaseOther()
}
