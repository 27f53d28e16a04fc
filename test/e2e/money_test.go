// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAccountingOfSlices: for Slurm the parts of a slice are TRES as any other. Limits, billing weights and what is used of
// a node come from Slurm alone.
func TestAccountingOfSlices(t *testing.T) {
	begin(t)
	ok(t, root, "sacctmgr -i add qos class")
	ok(t, root, "sacctmgr -i modify account vgpu set qos+=class")
	t.Cleanup(func() { ok(t, root, "sacctmgr -i modify account vgpu set qos-=class") })
	reconfigured(t, "AccountingStorageEnforce=limits,qos\n"+
		"PartitionName=money Nodes=n1 MaxTime=60 DefaultTime=5 OverSubscribe=NO TRESBillingWeights=CPU=0,GRES/gpumem=0.01,GRES/gpucores=1\n")
	for _, tc := range []struct{ name, what, limit, none, options, reason string }{
		{"MiB of a user", "qos class", "MaxTRESPerUser=gres/gpumem=6000", "MaxTRESPerUser=gres/gpumem=-1", "--gres=vgpu:1 --vgpu-mem=4000", "QOSMaxGRESPerUser"},
		{"slices of a QOS", "qos class", "GrpTRES=gres/vgpu=1", "GrpTRES=gres/vgpu=-1", "--gres=vgpu:1 --vgpu-mem=1000", "QOSGrpGRES"},
		{"percent of an account", "account vgpu", "GrpTRES=gres/gpucores=60", "GrpTRES=gres/gpucores=-1", "--gres=vgpu:1 --vgpu-cores=40", "AssocGrpGRES"},
	} {
		t.Run(tc.name, func(t *testing.T) { twoOf(t, tc.what, tc.limit, tc.none, tc.options, tc.reason) })
	}
	t.Run("used and billed", usedAndBilled)
}

// twoOf has two jobs that are too much together: the second waits, with Slurm's reason, until the first is over.
func twoOf(t *testing.T, what, limit, none, options, reason string) {
	ok(t, root, "sacctmgr -i modify "+what+" set "+limit)
	t.Cleanup(func() { ok(t, root, "sacctmgr -i modify "+what+" set "+none) })
	first, release := holding(t, one, "--qos=class "+options)
	awaitState(t, first, "RUNNING")
	second := submit(t, one, "--qos=class "+options, seen)
	until(t, "the reason", 30*time.Second, func() error {
		if says := strings.TrimSpace(run(t, root, "squeue -h -o '%T %r' -j "+second).Stdout); says != "PENDING "+reason {
			return fmt.Errorf("it is %s", says)
		}
		return nil
	})
	release()
	finish(t, one, first)
	finish(t, one, second)
}

// usedAndBilled is about one job of known size.
func usedAndBilled(t *testing.T) {
	job, release := holding(t, one, "-p money --gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30")
	awaitState(t, job, "RUNNING")
	held := slicesOf(t, job)
	used := ok(t, root, "sinfo -h -N -n n1 -p money -O GresUsed:300").Stdout
	for name, want := range map[string]int{"vgpu": len(held), "gpumem": held[0].MemMiB, "gpucores": held[0].SMPercent} {
		match := regexp.MustCompile(`\b` + name + `:(\d+)`).FindStringSubmatch(used)
		if match == nil || match[1] != strconv.Itoa(want) {
			t.Errorf("sinfo says %s of %s, the state file has %d", strings.TrimSpace(used), name, want)
		}
	}
	wantTRES(t, job, "AllocTRES", "gres/vgpu=1", "gres/gpumem=3000", "gres/gpucores=30", "billing=60")
	release()
	finish(t, one, job)
}

// TestWhatJobstatsWroteStays: an AdminComment that begins with JS1: is another program's to read.
func TestWhatJobstatsWroteStays(t *testing.T) {
	begin(t)
	const jobstats = "JS1:H4sIAAAAAAAC/6tWSkxJKUotLlayUqhWKs5ITSxKBQA"
	job, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000")
	awaitState(t, job, "RUNNING")
	slicesOf(t, job)
	ok(t, root, "scontrol update jobid="+job+" AdminComment="+jobstats) // slurmctld tells slurmdbd when the job has ended
	release()
	finish(t, one, job)
	hasExtra := run(t, root, "sacct -n -X -o Extra -j "+job).Code == 0 // since 23.02
	explain := "vgpuctl --config " + c.ConfigPath() + " --node n1 explain " + job
	want := "report       not written: the admin comment is jobstats', and this release of Slurm has no field Extra\n"
	if hasExtra {
		want = "report       written to the accounting database\n"
	}
	until(t, "the report of the record", 60*time.Second, func() error {
		if result := run(t, root, explain); !strings.Contains(result.Stdout, want) {
			return fmt.Errorf("%s", result)
		}
		return nil
	})
	if got := account(t, job, "AdminComment"); got != jobstats {
		t.Errorf("jobstats' text is %q by now", got)
	}
	if hasExtra && !strings.Contains(account(t, job, "Extra"), `"mem_mib":3000`) {
		t.Errorf("Extra is %q", account(t, job, "Extra"))
	}
	kept, err := filepath.Glob(c.Home.Path("vgpu-spool", "n1", "history", job+".*.json"))
	if err != nil || len(kept) != 1 {
		t.Errorf("the record is not kept: %v, %v", kept, err)
	}
}
