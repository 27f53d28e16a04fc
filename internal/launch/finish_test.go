// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

func TestFinishTwice(t *testing.T) {
	step := preparedJob(t, nil)
	if _, err := Prepare(step); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if says, err := Finish(step); err != nil || says != "" {
			t.Fatal(says, err)
		}
		if _, err := os.Lstat(step.RunDir.Step(job, "0")); !os.IsNotExist(err) {
			t.Errorf("the step's folder is still there: %v", err)
		}
	}
}

// What was done with the job's steps is said at the end of its script, and of no other step.
func TestTheScriptsEndSaysWhatWasDoneWithSteps(t *testing.T) {
	for verdict, want := range map[share.Verdict]string{share.RunsWhileOff: "a step was frozen 2 times, for 10 s each time, a step was killed once", "": ""} {
		step := preparedJob(t, nil)
		if err := ledger.CreateTime(step.RunDir.Time(job), job, 2); err != nil {
			t.Fatal(err)
		}
		page, err := ledger.OpenTime(step.RunDir.Time(job), job)
		if err != nil {
			t.Fatal(err)
		}
		defer page.Close()
		if verdict != "" {
			both := ledger.TimeDevice{Frozen: 2, Killed: 1, Verdict: verdict.Number()}
			if err := page.Put([]ledger.TimeDevice{both, both}); err != nil {
				t.Fatal(err)
			}
		}
		if says, err := Finish(step); err != nil || says != "" {
			t.Errorf("step 0 says %q, %v", says, err)
		}
		step.Step = 0xfffffffb // SLURM_BATCH_SCRIPT
		if says, err := Finish(step); err != nil || !strings.Contains(says, want) || want == "" && says != "" {
			t.Errorf("%s: the script says %q, %v", verdict, says, err)
		}
	}
}
