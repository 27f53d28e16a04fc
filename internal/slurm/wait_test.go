// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recorder is a client whose scontrol writes down what it is asked, and then does as it is told.
func recorder(t *testing.T, body string) (Client, func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "asked")
	client := Client{Scontrol: script(t, fmt.Sprintf(`echo "$*" >> %s; %s`, path, body)), Timeout: 10 * time.Second}
	return client, func() string {
		asked, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(asked)
	}
}

func TestWaitChangesOneJob(t *testing.T) {
	for _, tc := range []struct {
		name string
		job  Job
		wait Wait
		want string
	}{
		{"later", Job{ID: 5}, Wait{For: 90 * time.Second, Reason: "n1: full"}, "update JobId=5 StartTime=now+90 AdminComment=vgpu: waits: n1: full\n"},
		{"now", Job{ID: 5}, Wait{}, "update JobId=5 StartTime=now AdminComment=\n"},
		{"elsewhere", Job{ID: 5}, Wait{For: time.Second, Elsewhere: true, Excluded: "n[1-3],n7"}, "update JobId=5 StartTime=now+1 AdminComment= ExcNodeList=n[1-3],n7\n"},
		{"anywhere again", Job{ID: 5}, Wait{Elsewhere: true}, "update JobId=5 StartTime=now AdminComment= ExcNodeList=\n"},
		{"a task", Job{ID: 5, ArrayJobID: 5, ArrayTaskID: "7"}, Wait{}, "update JobId=5_7 StartTime=now AdminComment=\n"},
		{"a component", Job{ID: 6, HetJobID: 5}, Wait{}, "update JobId=5 StartTime=now AdminComment=\n"},
		{"several tasks", Job{ID: 5, ArrayJobID: 5, ArrayTaskID: "7-9"}, Wait{}, ""},
		{"a comment of others", Job{ID: 5, commented: true}, Wait{Reason: "n1: full"}, "update JobId=5 StartTime=now\n"},
		{"tasks by the GPU", Job{ID: 5, numTasks: 2}, Wait{}, "update JobId=5 StartTime=now AdminComment= NumTasks=2\n"},
		{"a long reason", Job{ID: 5}, Wait{Reason: strings.Repeat("x", 2000)}, "update JobId=5 StartTime=now AdminComment=vgpu: waits: " + strings.Repeat("x", 1000) + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, asked := recorder(t, "")
			if err := client.Wait(t.Context(), tc.job, tc.wait); (err != nil) != (tc.want == "") {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.want, asked()); diff != "" {
				t.Error(diff)
			}
		})
	}
	refusing, asked := recorder(t, "echo Job/step already completing or completed >&2; exit 1")
	if err := refusing.Wait(t.Context(), Job{ID: 5}, Wait{}); err == nil || strings.Count(asked(), "\n") != 1 {
		t.Errorf("what the controller refuses: %v, asked %q", err, asked())
	}
	for _, says := range []string{"Unable to contact slurm controller", "Job update not available right now, the DB index is being set, try again in a bit for job 5"} {
		lost := filepath.Join(t.TempDir(), "lost")
		returning, asked := recorder(t, fmt.Sprintf("[ -e %[1]s ] || { touch %[1]s; echo %[2]q >&2; exit 1; }", lost, says))
		if err := returning.Wait(t.Context(), Job{ID: 5}, Wait{}); err != nil || strings.Count(asked(), "\n") != 2 {
			t.Errorf("a controller that said %q: %v, asked %q", says, err, asked())
		}
	}
}

func TestStandings(t *testing.T) {
	client := Client{Squeue: script(t, `case "$*" in
*--jobs=5,6,7,8,4,11,12,13,14\ *) printf '5|PENDING|BeginTime||1795578327\n6|RUNNING|None|n[1-2]|N/A\n9|PENDING|None||N/A\n';;
*--jobs=5\ *) printf '5|PENDING|BeginTime||1795578327\n';;
*--jobs=6\ *) printf '6|RUNNING|None|n[1-2]|N/A\n9|PENDING|None||N/A\n';; # an array, all of it
*--jobs=8\ *) ;;
*--jobs=4\ *) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1;;
*--jobs=3\ *) echo "3|a|b";;
*) exit 1;; esac`)}
	want := map[uint32]Standing{5: {State: "PENDING", Reason: "BeginTime", Begins: time.Unix(1795578327, 0)}, 6: {State: "RUNNING", Reason: "None", Nodes: "n[1-2]"}}
	for _, ids := range [][]uint32{{5, 6, 7, 8, 4, 11, 12, 13, 14}, {5, 6}, {4, 6, 8, 5}} { // all at once, and each alone
		got, err := client.Standings(t.Context(), ids)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(ids, err, diff)
		}
	}
	for _, id := range []uint32{8, 4} {
		if got, err := client.Standings(t.Context(), []uint32{id}); err != nil || len(got) > 0 {
			t.Errorf("of unknown job %d: %v, %v", id, got, err)
		}
	}
	for _, id := range []uint32{3, 2} {
		if got, err := client.Standings(t.Context(), []uint32{id}); err == nil {
			t.Errorf("of job %d: %v", id, got)
		}
	}
	for standing, held := range map[Standing]bool{{State: "PENDING", Reason: "JobHeldUser"}: true, {State: "PENDING", Reason: "JobHeldAdmin"}: true,
		{State: "PENDING", Reason: "job requeued in held state"}: true, {State: "PENDING", Reason: "BadConstraints"}: false, {State: "PENDING", Reason: "DependencyNeverSatisfied"}: true, {State: "RUNNING", Reason: "JobHeldUser"}: false} {
		if standing.Held() != held {
			t.Errorf("%+v: held is %v", standing, !held)
		}
	}
}

func TestElsewhere(t *testing.T) {
	client := Client{Squeue: script(t, "exit 1")}
	sinfo := filepath.Join(filepath.Dir(client.Squeue), "sinfo")
	nodes := "n1|mix|(null)|vgpu:20,gpumem:1\nn2|idle|big,fast|gpu:1,vgpu:20\nn3|drain|(null)|vgpu:20\nn4|alloc*|(null)|vgpu:20\nn5|idle|(null)|gpu:2\n"
	if err := os.WriteFile(sinfo, []byte("#!/bin/sh\ncase \"$*\" in *--partition=p*) printf '"+strings.ReplaceAll(nodes, "\n", `\n`)+"';; *) exit 1;; esac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		job  Job
		want bool
	}{
		{"two others", Job{Partition: "p", numNodes: 2}, true},
		{"three are too many", Job{Partition: "p", numNodes: 3}, false},
		{"all excluded", Job{Partition: "p", Excluded: "n[2-4]"}, false},
		{"one left", Job{Partition: "p", Excluded: "n[3-4]"}, true},
		{"features", Job{Partition: "p", Excluded: "n4", features: []string{"fast", "big"}}, true},
		{"features of none", Job{Partition: "p", features: []string{"fast", "small"}}, false},
		{"required nodes", Job{Partition: "p", required: "n1"}, false},
		{"not clear", Job{Partition: "p", unclear: true}, false},
		{"a component", Job{Partition: "p", HetJobID: 3}, false},
	} {
		if got, err := client.Elsewhere(t.Context(), tc.job, "n1"); err != nil || got != tc.want {
			t.Errorf("%s: got %v, %v", tc.name, got, err)
		}
	}
	if got, err := client.Elsewhere(t.Context(), Job{Partition: "q"}, "n1"); err == nil || got {
		t.Errorf("without an answer: %v, %v", got, err)
	}
}

func TestReadmit(t *testing.T) {
	client, asked := recorder(t, `printf 'n1\nn2\nn7\n'`)
	if got, err := client.Readmit(t.Context(), Job{Excluded: "n[1-2],n7"}, "n2", "n7"); err != nil || got != "n1,n7" || asked() != "show hostnames n[1-2],n7\n" {
		t.Errorf("got %q, %v, asked %q", got, err, asked())
	}
	if got, err := client.Readmit(t.Context(), Job{Excluded: "n[1-2],n7", unclear: true}, "n2", "n7"); err != nil || got != "n7" {
		t.Errorf("not clear: got %q, %v", got, err)
	}
	if With("", "n1") != "n1" || With("n[2-3]", "n1") != "n[2-3],n1" {
		t.Error("a node is not added")
	}
}

func TestWaits(t *testing.T) {
	for text, want := range map[string]string{
		"JobId=5\\n   JobState=PENDING Reason=BeginTime\\n   AdminComment=vgpu: waits: n1: full \\n": "n1: full",
		"JobId=5\\n   JobState=RUNNING Reason=None\\n   AdminComment=vgpu: waits: n1: full \\n":      "",
		"JobId=5\\n   JobState=PENDING\\n   AdminComment=another \\n":                                "",
		"JobId=5\\n   JobState=PENDING\\n   AdminComment=vgpu: waits: n1: \\033[1m \\n":              "n1: ?[1m",
	} {
		client, _ := recorder(t, "printf '"+text+"'")
		if got, err := client.Waits(t.Context(), "5"); err != nil || got != want {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
	gone, _ := recorder(t, "echo Invalid job id specified >&2; exit 1")
	if got, err := gone.Waits(t.Context(), "5"); !errors.Is(err, ErrUnknownJob) || got != "" {
		t.Errorf("of no job: %q, %v", got, err)
	}
}

func TestWhereAJobMayRunIsRead(t *testing.T) {
	plain := fixture(t, "no-gres.txt")
	for name, tc := range map[string]struct {
		change [2]string
		want   Job
	}{
		"as it is":      {[2]string{}, Job{Partition: "p", numNodes: 1}},
		"limited":       {[2]string{"TimeLimit=UNLIMITED", "TimeLimit=1-02:03:04"}, Job{Partition: "p", numNodes: 1, Limit: 26*time.Hour + 3*time.Minute + 4*time.Second}},
		"ends":          {[2]string{"EndTime=Unknown", "EndTime=1795230580"}, Job{Partition: "p", numNodes: 1, Ends: time.Unix(1795230580, 0).UTC()}},
		"nodes":         {[2]string{"NumNodes=1", "NumNodes=2-2"}, Job{Partition: "p", numNodes: 2}},
		"excluded":      {[2]string{"ExcNodeList=(null)", "ExcNodeList=n[1-2]"}, Job{Partition: "p", numNodes: 1, Excluded: "n[1-2]"}},
		"required":      {[2]string{"ReqNodeList=(null)", "ReqNodeList=n8"}, Job{Partition: "p", numNodes: 1, required: "n8"}},
		"features":      {[2]string{"Features=(null)", "Features=big&fast"}, Job{Partition: "p", numNodes: 1, features: []string{"big", "fast"}}},
		"odd features":  {[2]string{"Features=(null)", "Features=[a|b]"}, Job{Partition: "p", numNodes: 1, features: []string{"[a|b]"}, unclear: true}},
		"reserved":      {[2]string{"DelayBoot=00:00:00", "DelayBoot=00:00:00 Reservation=r"}, Job{Partition: "p", numNodes: 1, unclear: true}},
		"imitated":      {[2]string{"JobName=j.sh", "JobName=j ExcNodeList=n9"}, Job{Partition: "p", numNodes: 1, unclear: true}},
		"commented":     {[2]string{"WorkDir=", "AdminComment=JS1:x WorkDir="}, Job{Partition: "p", numNodes: 1, commented: true}},
		"forged":        {[2]string{"WorkDir=", "AdminComment=the site's WorkDir=/x AdminComment=vgpu: waits: "}, Job{Partition: "p", numNodes: 1, commented: true}},
		"forged before": {[2]string{"WorkDir=", "WorkDir=/x AdminComment=vgpu: waits:  AdminComment=the site's "}, Job{Partition: "p", numNodes: 1, commented: true}},
		"our comment":   {[2]string{"WorkDir=", "AdminComment=vgpu: waits: n1: x WorkDir="}, Job{Partition: "p", numNodes: 1}},
		"by the GPU":    {[2]string{"WorkDir=", "NtasksPerTRES=1 WorkDir="}, Job{Partition: "p", numNodes: 1, numTasks: 1}},
		"older":         {[2]string{"WorkDir=", "NtasksPerTRES:0 WorkDir="}, Job{Partition: "p", numNodes: 1}},
		"tasks twice":   {[2]string{"JobName=j.sh", "JobName=j NtasksPerTRES=1 NumTasks=9"}, Job{Partition: "p", numNodes: 1}},
		"empty comment": {[2]string{"WorkDir=", "AdminComment= WorkDir="}, Job{Partition: "p", numNodes: 1}},
	} {
		text := strings.Replace(plain, tc.change[0], tc.change[1], 1)
		got, err := parseJob(text, 22)
		if err != nil || tc.change[0] != "" && text == plain {
			t.Fatalf("%s: %v", name, err)
		}
		got = Job{Partition: got.Partition, numNodes: got.numNodes, Limit: got.Limit, Ends: got.Ends, Excluded: got.Excluded, required: got.required,
			features: got.features, unclear: got.unclear, commented: got.commented, numTasks: got.numTasks}
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Job{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestJobsOn(t *testing.T) {
	client, said := recorder(t, "echo '21|1000'; echo ' 22|2000 '")
	client.Squeue = client.Scontrol
	jobs, err := client.JobsOn(t.Context(), "n1")
	if err != nil || len(jobs) != 2 || jobs[21].Unix() != 1000 || jobs[22].Unix() != 2000 {
		t.Errorf("%v, %v", jobs, err)
	}
	if got := said(); !strings.Contains(got, "--nodelist=n1") || !strings.Contains(got, "--states=running,suspended") {
		t.Errorf("asked %s", got)
	}
	for _, answer := range []string{"21", "x|1", "21|N/A"} {
		client.Squeue = script(t, "echo '"+answer+"'")
		if jobs, err := client.JobsOn(t.Context(), "n1"); err == nil {
			t.Errorf("%q is read as %v", answer, jobs)
		}
	}
}
