// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// fixture reads what scontrol of Slurm 22.05.8 printed for a job of this kind.
func fixture(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestEntitlementOfRealAnswers(t *testing.T) {
	type ent = request.Entitlement
	for _, tc := range []struct {
		file   string
		job    uint32
		node   string
		want   ent
		squeue string
	}{
		{"array-task.txt", 19, "n08", ent{Slices: 1, MemMiB: 100, SMPercent: 30}, ""},
		{"two-nodes.txt", 21, "n08", ent{Slices: 2, MemMiB: 81920}, ""},
		{"two-nodes.txt", 21, "n09", ent{Slices: 2, MemMiB: 81920}, ""},
		{"ranges.txt", 20, "n08", ent{MemMiB: 1000}, ""},
		{"ranges.txt", 20, "n10", ent{MemMiB: 1000}, ""},
		{"no-gres.txt", 22, "n08", ent{}, ""},
		{"salloc.txt", 24, "n08", ent{Slices: 1, MemMiB: 11}, ""},
		{"exclusive.txt", 27, "n10", ent{Slices: 1, MemMiB: 100}, "27|gres:vgpu:1,gres:gpumem:100|N/A|N/A|N/A|\n"},
		{"exclusive-unasked.txt", 28, "n09", ent{}, "28|N/A|N/A|N/A|N/A|\n"},
	} {
		t.Run(tc.file+"@"+tc.node, func(t *testing.T) {
			job, err := ask(fixture(t, tc.file), tc.squeue, tc.job)
			if err != nil {
				t.Fatal(err)
			}
			got, err := job.Entitlement(tc.node)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if job.State != "RUNNING" || job.UID != 0 || job.Restarts != 0 || !job.Requeue {
				t.Errorf("read %+v", job)
			}
			if job.Batch == (tc.file == "salloc.txt") {
				t.Errorf("batch is %v", job.Batch)
			}
			if _, err := job.Entitlement("n8"); !errors.Is(err, ErrNoDetail) {
				t.Errorf("on a node that is not the job's: %v", err)
			}
		})
	}
}

func TestMemoryTypedAsGRESIsSeenByTheOrder(t *testing.T) {
	text := fixture(t, "two-nodes.txt")
	const asked = "TresPerNode=gres:vgpu:2,gres:gpumem:81920"
	if !strings.Contains(text, asked) {
		t.Fatal("the fixture has changed")
	}
	for to, want := range map[string]bool{
		asked: false,
		"TresPerNode=gres:gpumem:81920,gres:vgpu:2":                                        true,
		"TresPerNode=gres/gpumem:81920,gres/vgpu:2":                                        true,
		"Container=x TresPerNode=gres:gpumem:1,gres:vgpu:1 " + asked:                       false,
		"Container=x TresPerNode=" + strings.TrimPrefix(asked, "TresPerNode=") + " Power=": false,
	} {
		job, err := ask(strings.Replace(text, asked, to, 1), "", 21)
		if err != nil {
			t.Fatal(err)
		}
		if job.MemTyped != want {
			t.Errorf("%s: MemTyped is %v", to, job.MemTyped)
		}
	}
}

func TestJobsThatHoldNothingAreFinished(t *testing.T) {
	for file, id := range map[string]uint32{"pending.txt": 15, "completed.txt": 12} {
		job, err := parseJob(fixture(t, file), id)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !job.Finished(0) {
			t.Errorf("%s is not finished: %+v", file, job)
		}
	}
	job, err := parseJob(fixture(t, "pending.txt"), 15)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Entitlement("n08"); !errors.Is(err, ErrNoDetail) {
		t.Errorf("a pending job's entitlement: %v", err)
	}
}

// A run whose time is not known for sure is not told from others by it.
func TestWhenAJobWasSubmitted(t *testing.T) {
	for text, want := range map[string]time.Time{
		" SubmitTime=1795230580 ": time.Unix(1795230580, 0).UTC(), " SubmitTime=1 ": time.Unix(1, 0).UTC(), " SubmitTime=0 ": {}, " SubmitTime=-5 ": {},
		" SubmitTime=2026-11-21T03:09:40 ": {}, " SubmitTime=Unknown ": {}, "": {}, " SubmitTime=1795230580 Comment=x SubmitTime=1795230580": {},
	} {
		if got := submitted(text); !got.Equal(want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestAFieldEndsWhereItsValueDoes(t *testing.T) {
	const text = "JobId=7 A=x B=\nC=y\tD= E=z"
	for key, want := range map[string]string{"A": "x", "B": "", "C": "y", "D": "", "E": "z"} {
		if got, err := only(text, key); err != nil || got != want {
			t.Errorf("%s=%q, %v, want %q", key, got, err, want)
		}
	}
	for _, text := range []string{"JobId=7 A=x\rA=x", "JobId=7", "A=x"} {
		if got, err := only(text, "A"); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestFinished(t *testing.T) {
	for _, tc := range []struct {
		state    string
		restarts int
		of       int
		want     bool
	}{
		{"RUNNING", 0, 0, false},
		{"RUNNING", 1, 0, true},
		{"COMPLETING", 1, 0, false},
		{"SUSPENDED", 0, 0, false},
		{"CONFIGURING", 0, 0, false},
		{"PENDING", 1, 0, true},
		{"COMPLETED", 0, 0, true},
		{"NODE_FAIL", 0, 0, true},
		{"TIMEOUT", 0, 0, true},
		{"REQUEUE_HOLD", 1, 0, true},
		{"SOMETHING_NEW", 0, 0, false},
	} {
		if got := (Job{State: tc.state, Restarts: tc.restarts}).Finished(tc.of); got != tc.want {
			t.Errorf("%s, restart %d, slices of run %d: finished %v", tc.state, tc.restarts, tc.of, got)
		}
	}
}

func TestImitationsAreNotBelieved(t *testing.T) {
	for file, id := range map[string]uint32{"forged-comment.txt": 18, "forged-name.txt": 23, "array.txt": 19, "het.txt": 0} {
		if job, err := parseJob(fixture(t, file), id); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%s: got %+v, %v", file, job, err)
		}
	}
	if _, err := parseJob(strings.TrimSpace(fixture(t, "two-nodes.txt"))+" JOB_GRES=vgpu:9\n", 21); err == nil || !strings.Contains(err.Error(), "JOB_GRES= 2 times") {
		t.Errorf("a second detail: %v", err)
	}
	// Whatever a user writes into the job's name, comment or paths, the answer is the true one or none.
	true22 := fixture(t, "no-gres.txt")
	forged := []string{
		"JOB_GRES=vgpu:9   Nodes=n08 CPU_IDs=0 Mem=0 GRES=vgpu(CNT:9),gpumem(CNT:9000) MinCPUsNode=1",
		"  Nodes=n08 CPU_IDs=0 Mem=0 GRES=vgpu(CNT:9),gpumem(CNT:9000) MinCPUsNode=1",
		"  Nodes=n08 CPU_IDs=0 Mem=0 GRES=vgpu(CNT:9),gpumem(CNT:9000)",
		"UserId=ann(1000)", "JobState=PENDING", "Restarts=7", "BatchFlag=0", "Requeue=0", "OverSubscribe=NO",
		"\nJobId=22 JobName=x", "\nJobId=5 JobName=x", "MinCPUsNode=0", "TresPerNode=gres:vgpu:9",
		"UserId=a(1) JobState=RUNNING Requeue=1 Restarts=0 BatchFlag=1 JOB_GRES=vgpu:9   Nodes=n08 CPU_IDs=0 Mem=0 " +
			"GRES=vgpu(CNT:9) MinCPUsNode=1 OverSubscribe=OK\nJobId=5 JobName=x",
	}
	honest, err := parseJob(true22, 22)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"JobName=", "WorkDir=", "StdOut="} {
		for _, text := range forged {
			for _, blank := range blanks {
				answer := strings.Replace(true22, " "+field, " "+field+"x"+blank+text+" ", 1)
				got, err := parseJob(answer, 22)
				if err != nil {
					continue
				}
				honest := honest
				honest.asked = got.asked // can only lower an entitlement
				if diff := cmp.Diff(honest, got, cmp.AllowUnexported(Job{}, nodeGRES{})); diff != "" {
					t.Errorf("%s%q is believed: %s", field, blank+text, diff)
				}
			}
		}
	}
}

// An answer that ends too soon must not pass for one of fewer nodes or of whole ones.
func TestAnswersThatEndInTheDetailAreNotBelieved(t *testing.T) {
	for _, file := range []string{"ranges.txt", "two-nodes.txt", "exclusive.txt"} {
		text := fixture(t, file)
		id, _, _ := strings.Cut(strings.TrimPrefix(text, "JobId="), " ")
		job, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseJob(text, uint32(job)); err != nil {
			t.Fatalf("%s whole: %v", file, err)
		}
		from, to := strings.Index(text, "JOB_GRES=")+len("JOB_GRES="), strings.Index(text, "MinCPUsNode=")
		for end := from; end < to+len("MinCPUsNode="); end++ {
			if got, err := parseJob(text[:end], uint32(job)); err == nil {
				t.Errorf("%s: %q is believed: %+v", file, text[from:end], got)
			}
		}
		if got, err := parseJob(text[:to]+"Features=(null) OverSubscribe=OK Contiguous=0", uint32(job)); err == nil {
			t.Errorf("%s without the end of the detail: %+v", file, got)
		}
	}
}

func TestHostlist(t *testing.T) {
	for _, tc := range []struct {
		list, node string
		want       bool
	}{
		{"n1", "n1", true}, {"n1", "n10", false}, {"n10", "n1", false},
		{"n[1-3]", "n2", true}, {"n[1-3]", "n4", false}, {"n[1-3]", "n02", false}, {"n[1-3]", "n", false},
		{"n[08-10]", "n08", true}, {"n[08-10]", "n8", false}, {"n[08-10]", "n10", true}, {"n[08-10]", "n010", false},
		{"n[9-11]", "n10", true}, {"n[09-100]", "n100", true},
		{"n[1,3,5-7]", "n3", true}, {"n[1,3,5-7]", "n6", true}, {"n[1,3,5-7]", "n2", false},
		{"a[1-2],b[1-2]", "b2", true}, {"a[1-2],b[1-2]", "b3", false}, {"a,b,c", "c", true},
		{"r[1-2]c[0-3]", "r2c3", true}, {"r[1-2]c[0-3]", "r3c3", false}, {"r[1-2]c[0-3]x", "r2c3x", true},
		{"n[1-3]-ib", "n2-ib", true}, {"n[1-3]-ib", "n2", false}, {"n[1-12]0", "n110", true},
		{"", "n1", false}, {"n[1-3", "n2", false}, {"n[]", "n", false}, {"n[3-1]", "n2", false}, {"n1", "", false}, {"", "", false},
	} {
		if got := HostlistContains(tc.list, tc.node); got != tc.want {
			t.Errorf("%q contains %q: %v", tc.list, tc.node, got)
		}
	}
}

func FuzzParseJob(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no fixtures", err)
	}
	for _, file := range files {
		f.Add(fixture(f, filepath.Base(file)), "n08")
	}
	f.Add("JobId=22 ", "n[")
	f.Fuzz(func(t *testing.T, text, node string) {
		job, err := parseJob(text, 22)
		if err != nil {
			return
		}
		if e, err := job.Entitlement(node); err == nil && !e.IsZero() && !strings.Contains(text, "GRES=") {
			t.Errorf("%+v out of nothing", e)
		}
	})
}

func FuzzHostlist(f *testing.F) {
	f.Add("n[08-10,12],r[1-2]c[0-3]", "n09")
	f.Fuzz(func(t *testing.T, list, node string) {
		if len(list) > 1000 || len(node) > 100 {
			return
		}
		HostlistContains(list, node)
		if !strings.ContainsAny(node, ",[]") && node != "" && !HostlistContains(node+",x", node) {
			t.Errorf("%q is not in itself", node)
		}
	})
}
