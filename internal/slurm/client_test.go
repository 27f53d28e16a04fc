// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// script writes a stand-in for one of Slurm's commands.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "command")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestJobIsAskedForByItsPreciseNameWhenItsIDIsTheArrays(t *testing.T) {
	client := Client{
		Scontrol: script(t, fmt.Sprintf(`case "$*" in
"-d -o show job 19") cat %s;;
"-d -o show job 19_3") cat %s;;
*) echo "asked $*" >&2; exit 1;; esac`, testdata(t, "array.txt"), testdata(t, "array-task.txt"))),
		Squeue:  script(t, "cat "+testdata(t, "array-squeue.txt")),
		Timeout: 10 * time.Second,
	}
	job, err := client.Job(context.Background(), 19)
	if err != nil {
		t.Fatal(err)
	}
	got, err := job.Entitlement("n08")
	if want := (request.Entitlement{Slices: 1, MemMiB: 100, SMPercent: 30}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

// What the controller was not asked, or did not answer, is no answer: a job without a state.
func TestWhatCannotBeAskedIsAnError(t *testing.T) {
	array, squeue := "cat "+testdata(t, "array.txt"), "cat "+testdata(t, "array-squeue.txt")
	for name, client := range map[string]Client{
		"scontrol fails":       {Scontrol: script(t, "exit 1"), Squeue: script(t, squeue)},
		"squeue fails":         {Scontrol: script(t, array), Squeue: script(t, "exit 1")},
		"squeue knows no such": {Scontrol: script(t, array), Squeue: script(t, "exit 0")},
		"scontrol fails later": {Scontrol: script(t, `case "$*" in *_3) exit 1;; esac; `+array), Squeue: script(t, squeue)},
		"no record":            {Scontrol: script(t, `case "$*" in *_3) exit 0;; esac; `+array), Squeue: script(t, squeue)},
	} {
		if job, err := client.askJob(context.Background(), 19); err == nil {
			t.Errorf("%s: got %+v", name, job)
		}
	}
}

// squeue names the siblings of an array as well; each has an id of its own.
func TestJobIsNotTakenForItsSibling(t *testing.T) {
	for rows, want := range map[string]string{
		"26 19_2\n25 19_1\n19 19_3": "19_3", "119 19_1\n19 19_3\n190 19_2": "19_3", "19 19_3\n26 19_2": "19_3",
		"26 19_2\n25 19_1": "", "19": "", "19 19_3 x": "", "19 19_3;x": "",
	} {
		client := Client{Squeue: script(t, "printf '"+rows+"\\n'")}
		got, err := client.preciseID(context.Background(), 19)
		if got != want || (want == "") != errors.Is(err, ErrUnknownJob) {
			t.Errorf("%q: got %q, %v, want %q", rows, got, err, want)
		}
	}
}

func TestJobOfAForgerIsAmbiguousAtOnce(t *testing.T) {
	client := Client{Scontrol: script(t, "cat "+testdata(t, "forged-name.txt")), Squeue: script(t, "echo 23 23"), Timeout: time.Hour}
	if _, err := client.Job(context.Background(), 23); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("got %v", err)
	}
}

func TestUnknownJob(t *testing.T) {
	client := Client{Scontrol: script(t, "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1"), Timeout: time.Hour}
	if _, err := client.Job(context.Background(), 9); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("got %v", err)
	}
	if finished, err := client.Finished(context.Background(), 9, 0); err != nil || !finished {
		t.Errorf("finished %v, %v", finished, err)
	}
}

func TestControllerThatComesBack(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	client := Client{Timeout: time.Minute, Scontrol: script(t, fmt.Sprintf(
		`echo x >> %[1]s; if [ $(wc -l < %[1]s) -lt 3 ]; then echo Unable to contact slurm controller >&2; exit 1; fi; cat %[2]s`,
		count, testdata(t, "no-gres.txt")))}
	if _, err := client.Job(context.Background(), 22); err != nil {
		t.Error(err)
	}
	if tries, _ := os.ReadFile(count); strings.Count(string(tries), "x") != 3 {
		t.Errorf("tried %q", tries)
	}
}

func TestControllerThatStaysAway(t *testing.T) {
	client := Client{Timeout: 300 * time.Millisecond, Scontrol: script(t, "echo Unable to contact slurm controller >&2; exit 1")}
	if _, err := client.Job(context.Background(), 22); err == nil || !strings.Contains(err.Error(), "Unable to contact") {
		t.Errorf("got %v", err)
	}
	if finished, err := client.Finished(context.Background(), 22, 0); err == nil || finished {
		t.Errorf("finished %v, %v", finished, err)
	}
}

// A command that hangs, with a child that holds the pipe, must not hold us longer than the deadline.
func TestHangingCommandIsKilledWithItsChildren(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	client := Client{Timeout: 200 * time.Millisecond, Scontrol: script(t, "sleep 1000 & echo $! > "+pidFile+"; wait")}
	if _, err := client.Job(context.Background(), 22); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		t.Skip("killed before the child began") // a slow machine; the deadline held
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the child lives: %s", stat)
		}
	}
}

func TestAnswerIsBounded(t *testing.T) {
	client := Client{Timeout: time.Minute, Scontrol: script(t, "head -c 20000000 /dev/zero")}
	if _, err := client.Job(context.Background(), 22); !errors.Is(err, ErrTooMuch) {
		t.Errorf("got %v", err)
	}
}

func TestEnvironmentIsOurs(t *testing.T) {
	t.Setenv("SLURM_CONF", "/some/slurm.conf")
	t.Setenv("SLURM_CLUSTERS", "elsewhere")
	t.Setenv("LD_PRELOAD", "")
	out, err := run(context.Background(), "/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "SLURM_CONF=/some/slurm.conf\n") || strings.Contains(out, "CLUSTERS") || strings.Contains(out, "LD_PRELOAD") {
		t.Errorf("got %s", out)
	}
}

// One that may lose nodes runs on without this one, which is told only where this one's name is known for sure.
func TestAJobThatHasLostThisNodeIsOverHere(t *testing.T) {
	for node, want := range map[string]bool{"": false, "n08": false, "n09": false, "n8": true, "n10": true} {
		client := Client{Scontrol: script(t, "cat "+testdata(t, "two-nodes.txt")), Timeout: time.Second, Node: node}
		if finished, err := client.Finished(t.Context(), 21, 0); err != nil || finished != want {
			t.Errorf("on %q: %v, %v", node, finished, err)
		}
	}
}
