// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	usagespool "github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// TestAReportOutlivesSlurmctld: slurmctld 24.11 that is started again writes once more what it has of jobs that it knows, and what it has
// of one that waited is an empty AdminComment.
func TestAReportOutlivesSlurmctld(t *testing.T) {
	begin(t)
	job := strings.TrimSpace(ok(t, one, "sbatch --parsable -H -o /dev/null --gres=vgpu:1 --vgpu-mem=3000 --wrap true").Stdout)
	for _, comment := range []string{"'vgpu: waits: n1: full'", ""} { // as a prolog does, and an epilog
		ok(t, root, "scontrol update JobId="+job+" AdminComment="+comment)
	}
	ok(t, root, "scontrol release "+job)
	finish(t, one, job)
	awaitUsage(t, job, 60*time.Second)
	awaitNoReporter(t)
	restart := func() {
		t.Helper()
		if err := c.StopDaemon("slurmctld", syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := c.StartDaemon("slurmctld"); err != nil {
			t.Fatal(err)
		}
		if err := c.AwaitIdle(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restart) // with the file as it was
	replaced(t, c.Home.Path("etc", "slurm.conf"), func(text string) string { return text + "MinJobAge=2\n" })
	restart()
	until(t, "the report to stand when slurmctld has forgotten the job", 90*time.Second, func() error {
		ok(t, root, tool("n1", "records --flush --backfill-after 0s"))
		known := run(t, root, "scontrol show job "+job).Code == 0
		comment := account(t, job, "AdminComment")
		var u usage
		if err := json.Unmarshal([]byte(comment), &u); known || err != nil || len(u.VGPU.Nodes["n1"]) != 1 {
			return fmt.Errorf("slurmctld knows it: %v; its AdminComment is %q", known, comment)
		}
		return nil
	})
}

// awaitNoReporter ends a reporter that still tries records of earlier tests, whose jobs the database will never know: it looks at reports again
// by its own clock.
func awaitNoReporter(t *testing.T) {
	t.Helper()
	spool := rundir.Spool(c.Home.Path("vgpu-spool", "n1"))
	until(t, "no reporter to be at work", 90*time.Second, func() error {
		left, err := filepath.Glob(filepath.Join(spool.Usage(), "*.json"))
		if err != nil {
			return err
		}
		for _, name := range left {
			t.Log("no longer tried: ", name)
			_ = os.Remove(name)
		}
		unlock, err := usagespool.Lock(spool)
		if err != nil {
			return err
		}
		if unlock == nil {
			return errors.New("one has the lock")
		}
		unlock()
		return nil
	})
}
