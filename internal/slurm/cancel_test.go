// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// canceller answers with a record, and writes down what else it is asked to do.
func canceller(t *testing.T, record, cancels string) (client Client, said func() string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	return Client{Timeout: 10 * time.Second,
			Scontrol: script(t, fmt.Sprintf("case $1 in -d) cat %s;; *) echo \"$@\" >> %s; [ $1 != notify ];; esac", testdata(t, record), log)),
			Squeue:   script(t, "exit 1"),
			Scancel:  script(t, "echo cancel \"$@\" >> "+log+"; "+cancels)}, func() string {
			text, _ := os.ReadFile(log)
			return string(text)
		}
}

// A job is told why, if it can be, and is cancelled in any case.
func TestCancelNamesOneJob(t *testing.T) {
	for _, tc := range []struct {
		record string
		job    uint32
		node   string
		want   string
	}{
		{"salloc.txt", 24, "n08", "notify 24 it's why\ncancel 24\n"},
		{"array-task.txt", 19, "n08", "notify 19_3 it's why\ncancel 19_3\n"},
		{"het-component.txt", 29, "n08", "notify 29 it's why\ncancel 29\n"},
		{"completed.txt", 12, "n08", ""},
		{"pending.txt", 15, "n08", ""},
		{"salloc.txt", 24, "n09", ""}, // an earlier run was there
	} {
		client, said := canceller(t, tc.record, "true")
		done, err := client.Cancel(context.Background(), tc.job, tc.node, "it's why")
		if err != nil || said() != tc.want || done != (tc.want != "") {
			t.Errorf("%s: %v, %v, called %q, want %q", tc.record, done, err, said(), tc.want)
		}
	}
}

func TestAJobWithOtherNodesIsLeftAlone(t *testing.T) {
	for record, want := range map[string]string{"salloc.txt": "notify 24 it's why\ncancel 24\n", "two-nodes.txt": "", "het-component.txt": ""} {
		job := map[string]uint32{"salloc.txt": 24, "two-nodes.txt": 21, "het-component.txt": 29}[record]
		client, said := canceller(t, record, "true")
		if done, err := client.CancelOnly(context.Background(), job, "n08", "it's why"); err != nil || said() != want || done != (want != "") {
			t.Errorf("%s: %v, %v, called %q", record, done, err, said())
		}
	}
}

func TestWhatCannotBeCancelledIsSaid(t *testing.T) {
	client, said := canceller(t, "salloc.txt", "echo scancel: error: Access denied >&2; exit 1")
	if done, err := client.Cancel(context.Background(), 24, "n08", "why"); done || err == nil || said() != "notify 24 why\ncancel 24\n" {
		t.Errorf("refused: %v, called %q", err, said())
	}
	client, _ = canceller(t, "salloc.txt", "echo scancel: error: Invalid job id specified >&2; exit 1")
	if done, err := client.Cancel(context.Background(), 24, "n08", "why"); done || err != nil {
		t.Errorf("one that has ended meanwhile: %v, %v", done, err)
	}
	if _, err := client.Cancel(context.Background(), 25, "n08", "why"); err == nil {
		t.Error("the answer was about another job")
	}
}
