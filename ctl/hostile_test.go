// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/queue"
	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// hostile clears the screen, names the window, fills the clipboard, and has the one-byte CSI.
const hostile = "x\x1b[2J\x1b]0;owned\x07\x1b]52;c;cm0\x07\u009b31m\u202ey"

// hostileNode is a node on which whatever is read is hostile where its form allows that: Slurm's answers, grants, records, waiting jobs.
func hostileNode(t *testing.T) (configPath string) {
	t.Helper()
	dir := t.TempDir()
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	comment := fmt.Sprintf(`{"vgpu":{"v":1,"nodes":{%[1]s:[{"gpu":%[1]s,"mem_mib":3000,"peak_mib":9,"curve":%[1]s}],"n1":[{"gpu":%[1]s,"mem_mib":3000,"curve":"400,600,1000,300,0zzzzz,0zzz00"}]},"refusals":{%[1]s:%[1]s}}}`, quoted)
	write := func(name, text string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("comment", comment, 0o644)
	write("hostile", hostile, 0o644)
	at := "h=$(cat " + dir + "/hostile)\n"
	write("bin/sacct", "#!/bin/sh\n"+at+"d=${5#--delimiter=}; e=$d; case $9 in *,Extra,*) e=$d$d;; esac\n"+
		"printf '%s' \"c${d}$7${d}$7${d}COMPLETED $h${d}$h${d}$h${d}$h${d}90${d}100${d}4000${d}2${d}n1,$h${d}$(cat "+dir+"/comment)${e}c\"\necho\n", 0o755)
	write("bin/squeue", "#!/bin/sh\n"+at+`case "$*" in
*--jobs=30*) echo "30|PENDING|$h|$h|Unknown" ;;
*--jobs=*) echo "slurm_load_jobs error: $h" >&2; exit 1 ;;
*) echo "7|$h|gres:vgpu:1||||" ;;
esac
`, 0o755)
	write("bin/scontrol", "#!/bin/sh\n"+at+"printf 'JobId=7 JobName=%s\\n   JobState=PENDING Reason=%s\\n   AdminComment=vgpu: waits: %s\\n' \"$h\" \"$h\" \"$h\"\n", 0o755)
	write("bin/sinfo", "#!/bin/sh\n"+at+"echo \"$h|$h|$h|vgpu:20,gpumem:20000,gpucores:200|vgpu:1,gpumem:1,gpucores:1|\"\n", 0o755)
	write("config.yaml", fmt.Sprintf("run_dir: %[1]s/run\nspool_dir: %[1]s/spool\nnvml_library: %[1]s/none.so\nlibrary: %[1]s/none.so\n"+
		"slurm: {scontrol: %[1]s/bin/scontrol, squeue: %[1]s/bin/squeue, sacct: %[1]s/bin/sacct, sacctmgr: %[1]s/none}\n", dir), 0o644)
	boot, err := inventory.BootID()
	if err != nil {
		t.Fatal(err)
	}
	run, spool := rundir.Dir(filepath.Join(dir, "run")), rundir.Spool(filepath.Join(dir, "spool"))
	mustDo(t, os.MkdirAll(run.Job(20), 0o755))
	mustDo(t, inventory.Write(run.Inventory(), device.Inventory{BootID: boot, GPUs: []device.GPU{gpuA}}))
	g := grant.Grant{Job: 20, UID: uint32(os.Geteuid()), Node: "n1", Since: time.Now(), Request: hostile, Refusal: hostile, Isolation: grant.IsolationStrict,
		Entitlement: request.Entitlement{Slices: 1}}
	mustDo(t, grant.Write(run.Grant(20), g))
	mustDo(t, usage.Write(spool, usage.Record{Job: 21, Node: "n1", UID: g.UID, Start: time.Now(), End: time.Now(), Request: hostile, Refusal: hostile, Outcome: hostile}))
	mustDo(t, queue.Write(spool, queue.Jobs{{Job: 7, Name: "7", Since: time.Now(), Last: time.Now(), Reason: hostile}}))
	return filepath.Join(dir, "config.yaml")
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Nothing that Slurm's database, its controller or a user says reaches a terminal as it is.
func TestNoTextOfOthersCommandsATerminal(t *testing.T) {
	path := hostileNode(t)
	for _, line := range []string{"explain 9", "explain 20", "explain 21", "explain 7", "explain 30", "explain 30_1", "report 9", "report 9 --plot", "report 20", "report 21", "report 30",
		"report 30_1", "report 7", "explain 9 --json", "explain 20 --json", "report 9 --json", "nodes", "nodes --json", "status", "status --json", "metrics", "records",
		"records --history", "audit", "doctor", "explain \x1b[2J", "set 20 --mem 5M", "\x1b[2J", "--\x1b[2J"} {
		t.Run(line, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(append(strings.Split(line, " "), "--config", path), &out, &errs)
			if out.Len()+errs.Len() == 0 {
				t.Errorf("exit %d, nothing said", code)
			}
			for _, text := range []string{out.String(), errs.String()} {
				for i, r := range text {
					if !unicode.IsPrint(r) && r != '\n' {
						t.Errorf("%q comes through: %.400q", r, text[max(0, i-200):])
						break
					}
				}
			}
		})
	}
}

// Extra is its owner's until somebody else writes there.
func TestExtraIsReadWhereUsageIsWrittenThereAlone(t *testing.T) {
	const said = `{"vgpu":{"v":1,"nodes":{"n1":[{"gpu":"GPU-aaaa","mem_mib":999999}],"n9":[{"gpu":"GPU-aaaa","mem_mib":1}]}}}`
	for name, tc := range map[string]struct {
		field, admin string
		nodes        int
	}{
		"by default":     {config.FieldAdminComment, "", 0},
		"extra":          {config.FieldExtra, "", 1},
		"jobstats'":      {config.FieldAdminComment, "JS1:abc", 1},
		"another's text": {config.FieldAdminComment, "paid", 0},
	} {
		row := report.Row{Job: 7, NodeList: "n1", Nodes: 1, AdminComment: tc.admin, Extra: said, HasExtra: true}
		run := runOfRow(row, tc.field)
		if len(run.Slices) != tc.nodes || run.OwnersWord != (tc.nodes > 0) {
			t.Errorf("%s: report has %d slices, owner's word %v; want %d", name, len(run.Slices), run.OwnersWord, tc.nodes)
		}
	}
}
