// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// What root's time page says of a job, here written as vgpud does, is what its user reads while it runs and in sacct afterwards. He himself can
// neither write there nor have his ledger say more.
func TestWhatVgpudCountedIsAccounted(t *testing.T) {
	begin(t)
	dir := rundir.Dir(runDir())
	job, release := holdingAfter(t, one, "--gres=vgpu:1 --vgpu-mem=3000", `
		page=`+runDir("pages")+`/$SLURM_JOB_ID/time
		[ -r $page ] && ! dd if=/dev/zero of=$page bs=64 count=1 conv=notrunc && ! rm -f $page && ! mv $page $page.old && echo safe`)
	slicesOf(t, job)
	awaitState(t, job, "RUNNING")
	id, err := strconv.ParseUint(job, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	page, err := ledger.OpenTime(dir.Time(uint32(id)), uint32(id))
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	if err := page.Put([]ledger.TimeDevice{{BusyNs: 750e6, UnknownNs: 200e6, LookedNs: 1, Flags: ledger.TimeInexact}}); err != nil {
		t.Fatal(err)
	}
	until(t, "the count in a report", 10*time.Second, func() error { // no time counts that is longer than the job's
		if out := ok(t, one, reportCommand("n1", job)).Stdout; !strings.Contains(out, "0.8 s of GPU time") || !strings.Contains(out, "counted by vgpud") {
			return errors.New(out)
		}
		return nil
	})
	release()
	if out := finish(t, one, job); !strings.Contains(out, "safe") {
		t.Errorf("in the job: %s", out)
	}
	d := awaitUsage(t, job, 60*time.Second).VGPU.Nodes["n1"]
	comment := account(t, job, "AdminComment")
	if len(d) != 1 || d[0].GPUSeconds == nil || *d[0].GPUSeconds != 0.75 || !strings.Contains(comment, `"counted":true,"unknown_s":0.2,"inexact":true`) {
		t.Errorf("AdminComment: %s", comment)
	}
	until(t, "the report of the ended job, on another node", 60*time.Second, func() error {
		if told := run(t, one, reportCommand("n2", job)); !strings.Contains(told.Stdout, "0.2 s of the time counted by nobody") {
			return errors.New(told.String())
		}
		return nil
	})
}
