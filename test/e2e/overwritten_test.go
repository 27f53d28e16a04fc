// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
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
		ok(t, root, tool("n1", "records --flush --again 0s"))
		known := run(t, root, "scontrol show job "+job).Code == 0
		comment := account(t, job, "AdminComment")
		var u usage
		if err := json.Unmarshal([]byte(comment), &u); known || err != nil || len(u.VGPU.Nodes["n1"]) != 1 {
			return fmt.Errorf("slurmctld knows it: %v; its AdminComment is %q", known, comment)
		}
		return nil
	})
}
