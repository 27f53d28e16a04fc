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

// canceller answers with lines of squeue, and writes down what else it is asked to do.
func canceller(t *testing.T, lines, cancels string) (client Client, said func() string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	return Client{Timeout: 10 * time.Second,
			Scontrol: script(t, fmt.Sprintf(`echo "$@" >> %s; [ $1 != notify ]`, log)),
			Squeue:   script(t, "printf '"+lines+"'"),
			Scancel:  script(t, "echo cancel \"$@\" >> "+log+"; "+cancels)}, func() string {
			text, _ := os.ReadFile(log)
			return string(text)
		}
}

// A job is told why, if it can be, and is cancelled in any case.
func TestCancelNamesOneJob(t *testing.T) {
	for _, tc := range []struct {
		name, lines string
		job         uint32
		want        string
	}{
		{"a job", `24|24|RUNNING|n[08-09]\n`, 24, "notify 24 it's why\ncancel 24\n"},
		{"a task that has its array's number", `18|19_2|RUNNING|n08\n19|19_3|RUNNING|n08\n`, 19, "notify 19_3 it's why\ncancel 19_3\n"},
		{"a component", `28|28+0|RUNNING|n07\n29|28+1|RUNNING|n08\n`, 29, "notify 28 it's why\ncancel 28\n"},
		{"one that its user stops", `24|24|STOPPED|n08\n`, 24, "notify 24 it's why\ncancel 24\n"},
		{"one that is suspended", `24|24|SUSPENDED|n08\n`, 24, "notify 24 it's why\ncancel 24\n"},
		{"one that has ended", `24|24|COMPLETED|n08\n`, 24, ""},
		{"one that ends", `24|24|COMPLETING|n08\n`, 24, ""},
		{"one that waits again", `24|24|PENDING|\n`, 24, ""},
		{"tasks that wait", `19|19_[3-5]|PENDING|\n`, 19, ""},
		{"one that runs elsewhere by now", `24|24|RUNNING|n09\n`, 24, ""},
		{"one that nobody knows", ``, 24, ""},
		{"another", `23|23|RUNNING|n08\n`, 24, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, said := canceller(t, tc.lines, "true")
			done, err := client.Cancel(context.Background(), tc.job, "n08", "it's why")
			if err != nil || said() != tc.want || done != (tc.want != "") {
				t.Errorf("%v, %v, called %q, want %q", done, err, said(), tc.want)
			}
		})
	}
}

func TestAJobWithOtherNodesIsLeftAlone(t *testing.T) {
	for line, want := range map[string]string{
		`24|24|RUNNING|n08`:      "notify 24 it's why\ncancel 24\n",
		`24|24|RUNNING|n[08-09]`: "",
		`24|24+1|RUNNING|n08`:    "",
	} {
		client, said := canceller(t, line+`\n`, "true")
		if done, err := client.CancelOnly(context.Background(), 24, "n08", "it's why"); err != nil || said() != want || done != (want != "") {
			t.Errorf("%s: %v, %v, called %q", line, done, err, said())
		}
	}
}

func TestWhatCannotBeCancelledIsSaid(t *testing.T) {
	client, said := canceller(t, `24|24|RUNNING|n08\n`, "echo scancel: error: Access denied >&2; exit 1")
	if done, err := client.Cancel(context.Background(), 24, "n08", "why"); done || err == nil || said() != "notify 24 why\ncancel 24\n" {
		t.Errorf("refused: %v, called %q", err, said())
	}
	client, _ = canceller(t, `24|24|RUNNING|n08\n`, "echo scancel: error: Invalid job id specified >&2; exit 1")
	if done, err := client.Cancel(context.Background(), 24, "n08", "why"); done || err != nil {
		t.Errorf("one that has ended meanwhile: %v, %v", done, err)
	}
	client, said = canceller(t, `24|24_[1-3]|RUNNING|n08\n`, "true")
	if _, err := client.Cancel(context.Background(), 24, "n08", "why"); err == nil || said() != "" {
		t.Errorf("a name of several: %v, called %q", err, said())
	}
}
