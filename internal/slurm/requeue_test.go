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

func TestRequeue(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	client := Client{Timeout: time.Minute, Scontrol: script(t, "echo $* >> "+log)}
	if err := client.Requeue(context.Background(), Job{ID: 7}); err != nil {
		t.Fatal(err)
	}
	client.Scontrol = script(t, "echo again >> "+log+"; echo Job is pending execution for job 7 >&2; exit 1")
	if err := client.Requeue(context.Background(), Job{ID: 7}); err == nil {
		t.Error("a refusal was taken for success")
	}
	if said, _ := os.ReadFile(log); string(said) != "requeue Incomplete 7\nagain\n" {
		t.Errorf("called %q", said)
	}
}

// What is said to the controller means one job, whatever the answer was that it comes from.
func TestRequeueNamesOneJob(t *testing.T) {
	for _, tc := range []struct {
		file string
		job  uint32
		want string
	}{
		{"array-task.txt", 19, "19_3"}, // the last task, which has the array's id
		{"het-component.txt", 29, "29"},
		{"no-gres.txt", 22, "22"},
	} {
		job, err := parseJob(fixture(t, tc.file), tc.job)
		if err != nil {
			t.Fatalf("%s: %v", tc.file, err)
		}
		if got, err := job.Name(); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v, want %q", tc.file, got, err, tc.want)
		}
	}
	for _, tc := range []struct {
		job  Job
		want string
	}{
		{Job{ID: 26, ArrayJobID: 19, ArrayTaskID: "0"}, "19_0"},
		{Job{ID: 30, HetJobID: 29}, "29"},
		{Job{ID: 19, ArrayJobID: 19, ArrayTaskID: "0-3"}, ""},
		{Job{ID: 19, ArrayJobID: 19, ArrayTaskID: "1,3"}, ""},
		{Job{ID: 19, ArrayJobID: 19, ArrayTaskID: "*"}, ""},
		{Job{ID: 19, ArrayJobID: 19, ArrayTaskID: "5-9%2"}, ""},
		{Job{ID: 19, ArrayJobID: 19}, ""},
		{Job{}, ""},
	} {
		got, err := tc.job.Name()
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%+v: %q, %v, want %q", tc.job, got, err, tc.want)
		}
		log := filepath.Join(t.TempDir(), "log")
		client := Client{Timeout: time.Minute, Scontrol: script(t, "echo $* >> "+log)}
		_ = client.Requeue(context.Background(), tc.job)
		want := ""
		if tc.want != "" {
			want = fmt.Sprintf("requeue Incomplete %s\n", tc.want)
		}
		if said, _ := os.ReadFile(log); string(said) != want {
			t.Errorf("%+v: called %q, want %q", tc.job, said, want)
		}
	}
}
