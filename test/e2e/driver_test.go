// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"
)

func TestStatusHoldsTheLedgerAgainstTheDriver(t *testing.T) {
	begin(t)
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 -o difference.out", `
		vgpu-fill --upto 1000 --hold-until done1 &
		until [ -e forge ]; do sleep 0.1; done
		printf '\0\0\0\0\0\0\0\0' | dd of=`+runDir("pages")+`/$SLURM_JOB_ID/ledger bs=1 seek=64 conv=notrunc
		touch forged; wait; rm done1 forge forged`)
	slicesOf(t, job)
	until(t, "1000 MiB and a context", 30*time.Second, func() error {
		if s := statusOf(t, root, job, ""); s.DriverMiB == nil || *s.DriverMiB < 1000 || s.UsedMiB == nil || *s.UsedMiB < 1000 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	s := statusOf(t, root, job, "")
	if *s.DriverMiB != *s.UsedMiB || *s.DifferenceMiB != 0 || *s.Processes != 1 {
		t.Errorf("root is told: driver %d MiB of %d processes, ledger %d MiB, difference %d", *s.DriverMiB, *s.Processes, *s.UsedMiB, *s.DifferenceMiB)
	}
	if s := statusOf(t, one, job, ""); s.DriverMiB == nil || *s.DriverMiB != *s.UsedMiB {
		t.Errorf("the job's user is told: %+v", s)
	}
	if s := statusOf(t, two, job, ""); s.DriverMiB != nil || s.UsedMiB != nil || s.DifferenceMiB != nil || s.Processes != nil {
		t.Errorf("another user is told: %+v", s)
	}
	// A job that takes itself out of its ledger is seen.
	held := *s.DriverMiB
	ok(t, one, "touch forge")
	until(t, "the forged ledger", 30*time.Second, func() error {
		if s := statusOf(t, root, job, ""); *s.UsedMiB != 0 || *s.DifferenceMiB != held {
			return fmt.Errorf("ledger %d, driver %d, difference %d", *s.UsedMiB, *s.DriverMiB, *s.DifferenceMiB)
		}
		return nil
	})
	ok(t, one, "touch done1")
	awaitState(t, job, "COMPLETED")
}
