// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestUsageInSreport: the parts of a slice are added up by hour, account and user as any other TRES are.
func TestUsageInSreport(t *testing.T) {
	begin(t)
	name := fmt.Sprintf("summed%d", time.Now().Unix()) // one that nobody has used
	ok(t, root, "sacctmgr -i add account "+name)
	ok(t, root, "sacctmgr -i add user "+one.Name+" account="+name)
	t.Cleanup(func() {
		ok(t, root, "sacctmgr -i delete user "+one.Name+" account="+name)
		ok(t, root, "sacctmgr -i delete account "+name)
	})
	job := submit(t, one, "--account="+name+" --gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", "sleep 3")
	finish(t, one, job)
	wantTRES(t, job, "AllocTRES", "gres/vgpu=1", "gres/gpumem=3000", "gres/gpucores=30")
	until(t, "slurmdbd to know of its end", 30*time.Second, func() error {
		if said := account(t, job, "State,End"); !strings.HasPrefix(said, "COMPLETED|2") {
			return fmt.Errorf("it is %s", said)
		}
		return nil
	})
	seconds, err := strconv.Atoi(account(t, job, "ElapsedRaw"))
	if err != nil || seconds < 3 {
		t.Fatalf("it ran for %d s, %v", seconds, err)
	}
	// slurmdbd adds up an hour when it is over. Who administers it may have that earlier, and for an hour that is not.
	began, err := time.ParseInLocation("2006-01-02T15:04:05", account(t, job, "Start"), time.Local)
	if err != nil {
		t.Fatal(err)
	}
	hour := time.Date(began.Year(), began.Month(), began.Day(), began.Hour(), 0, 0, 0, time.Local)      // of its zone
	from, to := hour.Format("2006-01-02T15:04:05"), hour.Add(2*time.Hour).Format("2006-01-02T15:04:05") // the job may have run into the next
	until(t, "the sums", 60*time.Second, func() error {                                                 // a slurmdbd that was just started is at the same work
		if result := run(t, root, fmt.Sprintf("sacctmgr -i rollup %s %s", from, to)); result.Code != 0 {
			return fmt.Errorf("%s", result)
		}
		return summed(t, name, from, to, seconds)
	})
}

// summed compares what sreport says of those hours with a job that ran for so long, which was the only one of its account.
func summed(t *testing.T, account, from, to string, seconds int) error {
	t.Helper()
	report := func(kind, fields string) string {
		return ok(t, root, fmt.Sprintf("sreport -n -P -t seconds --tres=gres/vgpu,gres/gpumem,gres/gpucores cluster %s start=%s end=%s format=%s", kind, from, to, fields)).Stdout
	}
	for tres, each := range map[string]int{"gres/vgpu": 1, "gres/gpumem": 3000, "gres/gpucores": 30} {
		want := fmt.Sprintf("%s|%s|%s|%d\n", account, one.Name, tres, seconds*each)
		for _, kind := range []string{"AccountUtilizationByUser accounts=" + account, "UserUtilizationByAccount users=" + one.Name} {
			if said := report(kind, "Account,Login,TresName,Used"); !strings.Contains(said, want) {
				return fmt.Errorf("%d s of %d: sreport %s has no %q:\n%s", seconds, each, kind, want, said)
			}
		}
		said := report("Utilization", "TresName,Allocated,Reported")
		_, row, _ := strings.Cut(said, tres+"|")
		if used, err := strconv.Atoi(row[:max(0, strings.Index(row, "|"))]); err != nil || used < seconds*each {
			return fmt.Errorf("of the cluster's %s at least %d are used; sreport says\n%s", tres, seconds*each, said)
		}
	}
	return nil
}
