// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

// rowsOf2 is what sacct 22.05.8 printed for an array of three tasks, one comment with a line break
// and one with the delimiter of other formats.
const rowsOf2 = "hc\x1f2_5\x1f4\x1fREQUEUED\x1f1:9\x1fphysics\x1f90\x1f1795230580\x1f1795230582\x1f1795230588\x1f1\x1fn1\x1fline1\nline2\x1fhc\n" +
	"hc\x1f2_6\x1f5\x1fCANCELLED by 0\x1f1:9\x1fphysics\x1f90\x1f1795230580\x1f1795230582\x1f1795230588\x1f2\x1fn[1-2]\x1fa|b\x1fhc\n" +
	"hc\x1f2_7\x1f2\x1fRUNNING\x1f1:9\x1fphysics\x1f90\x1f1795230580\x1f1795230582\x1fUnknown\x1f1\x1fn1\x1f\x1fhc\n"

func TestParseRows(t *testing.T) {
	start := time.Unix(1795230582, 0)
	submit, end := time.Unix(1795230580, 0), time.Unix(1795230588, 0)
	want := []Row{
		{Job: 4, Cluster: "hc", JobID: "2_5", State: "REQUEUED", ExitCode: "1:9", Account: "physics", TimeLimit: 90 * time.Minute, Submit: submit, Start: start, End: end, Ended: true, Nodes: 1, NodeList: "n1",
			AdminComment: "line1\nline2"},
		{Job: 5, Cluster: "hc", JobID: "2_6", State: "CANCELLED by 0", ExitCode: "1:9", Account: "physics", TimeLimit: 90 * time.Minute, Submit: submit, Start: start, End: end, Ended: true, Nodes: 2,
			NodeList: "n[1-2]", AdminComment: "a|b"},
		{Job: 2, Cluster: "hc", JobID: "2_7", State: "RUNNING", ExitCode: "1:9", Account: "physics", TimeLimit: 90 * time.Minute, Submit: submit, Start: start, Nodes: 1, NodeList: "n1"},
	}
	got, err := parseRows(rowsOf2, "\x1f", false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err := parseRows("", "\x1f", false); err != nil || len(got) != 0 {
		t.Errorf("no answer: %v, %v", got, err)
	}
	for _, text := range []string{"hc", "hc\x1f2\x1f", "no such column\n", strings.TrimSuffix(rowsOf2, "hc\n"),
		"a" + strings.Repeat("\x1f1", 12) + "\x1fb\n"} {
		if got, err := parseRows(text, "\x1f", false); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// script writes a program that says how it was called.
func script(t *testing.T, dir, name, body string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// What the commands are asked, with their environment.
const writerOrder = `{"job_id":"7_1","cluster":"c","state":"COMPLETED","submit":"2026-11-21T03:09:40Z","end":"2026-11-21T03:09:41Z","field":"AdminComment","was":"old",` +
	`"text":"{\"text\":\"it's ` + "`so`" + `\"}"}` + "\n"

var commandsOfSlurm = `sacct
<-D>
<-n>
<-P>
<-X>
<--delimiter=DELIMITER>
<-j>
<7,9>
<-o>
<Cluster,JobID,JobIDRaw,State,ExitCode,Account,TimelimitRaw,Submit,Start,End,NNodes,NodeList,AdminComment,Extra,Cluster>
SLURM_CONF=/etc/elsewhere/slurm.conf
SLURM_TIME_FORMAT=%s
writer
<--write>
SLURM_CONF=/etc/elsewhere/slurm.conf
SLURM_TIME_FORMAT=%s
` + strings.Repeat(writerOrder, 4) + `sacctmgr
<-i>
<modify>
<job>
<where>
<jobid=7_1>
<cluster=c>
<set>
<AdminComment={"text":"it\u0027s \u0060so\u0060"}>
SLURM_CONF=/etc/elsewhere/slurm.conf
SLURM_TIME_FORMAT=%s
`

func TestSlurmCommands(t *testing.T) {
	t.Setenv("SLURM_CONF", "/etc/elsewhere/slurm.conf")
	t.Setenv("LD_PRELOAD_OF_A_JOB", "1")
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	record := `{ echo "$0" | sed 's|.*/||'; printf '<%s>\n' "$@"; env | grep -E '^(SLURM_CONF|SLURM_TIME_FORMAT|LD_PRELOAD_OF)' | sort; cat; } >> ` + log
	s := Slurm{
		Commands: config.Slurm{
			Sacct:    script(t, dir, "sacct", record),
			Sacctmgr: script(t, dir, "sacctmgr", record),
		},
		Extra:  true,
		Writer: []string{script(t, dir, "writer", record+"; echo '{}'; echo '{\"changed\":\"x\"}'; echo '{\"error\":\"no way\"}'; exit 1"), "--write"},
	}
	if _, err := s.Rows(t.Context(), []uint32{7, 9}); err != nil {
		t.Fatal(err)
	}
	submit := time.Unix(1795230580, 0).UTC()
	row := Row{Cluster: "c", JobID: "7_1", State: "COMPLETED", Submit: submit, End: submit.Add(time.Second), AdminComment: "old"}
	text := `{"text":"it's ` + "`so`" + `"}`
	update := Update{Row: row, Newest: true, Field: FieldAdminComment, Text: text}
	errs := s.Write(t.Context(), []Update{update, update, update, update})
	var changed *ChangedError
	if errs[0] != nil || !errors.As(errs[1], &changed) || changed.Is != "x" || errs[2].Error() != "no way" ||
		errs[3] == nil || !strings.Contains(errs[3].Error(), "exit status 1") {
		t.Errorf("the writer's replies: %v", errs)
	}
	s.Writer = []string{script(t, dir, "none", "exit 69")}
	older, requeued := update, update
	older.Newest, requeued.Row.State = false, "REQUEUED"
	errs = s.Write(t.Context(), []Update{update, older, requeued})
	if errs[0] != nil || !errors.Is(errs[1], ErrOlderRun) || !errors.Is(errs[2], ErrOlderRun) {
		t.Errorf("sacctmgr: %v", errs)
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile("\x1f[A-Z2-7]{20,}\x1f").ReplaceAllString(string(got), "DELIMITER")
	if diff := cmp.Diff(commandsOfSlurm, told); diff != "" {
		t.Error(diff)
	}
}

func TestSacctThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for name, body := range map[string]string{"fails": "echo Connection refused >&2; exit 1", "hangs": "exec sleep 60"} {
		s := Slurm{Commands: config.Slurm{Sacct: script(t, dir, name, body)}}
		if _, err := s.Row(ctx, 7); !errors.Is(err, ErrDatabase) {
			t.Errorf("%s: %v", name, err)
		}
	}
	empty := Slurm{Commands: config.Slurm{Sacct: script(t, dir, "empty", "exit 0")}}
	if _, err := empty.Row(t.Context(), 7); !errors.Is(err, ErrNoRow) {
		t.Errorf("a job that is not there: %v", err)
	}
}
