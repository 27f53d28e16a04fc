// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ranks is a client of a cluster with partitions low, high and off, and QOS batch, urgent and other.
func ranks(t *testing.T, kind, mode, exempt string) (client Client, did string) {
	t.Helper()
	dir := t.TempDir()
	did = filepath.Join(dir, "did")
	now := time.Now().Unix()
	for name, body := range map[string]string{
		"scontrol": fmt.Sprintf(`case "$*" in
"show config") printf 'PreemptMode             = %s\nPreemptType             = preempt/%s\nPreemptExemptTime       = %s\n';;
"-o show partition low") echo "PartitionName=low PriorityTier=1 PreemptMode=REQUEUE State=UP";;
"-o show partition high") echo "PartitionName=high PriorityTier=10 PreemptMode=OFF State=UP";;
"-o show partition off") echo "PartitionName=off PriorityTier=1 PreemptMode=OFF State=UP";;
"-o show partition gang") echo "PartitionName=gang PriorityTier=1 PreemptMode=GANG,SUSPEND State=UP";;
requeue*) echo "$*" >> %s; case "$*" in *9) echo "Requested operation is presently disabled" >&2; exit 1;; esac;;
*) exit 1;; esac`, mode, kind, exempt, did),
		"squeue":   fmt.Sprintf(`printf '1|1|high|urgent|%[1]d\n2|2|low|batch|%[2]d\n3|8_3|low|other|%[2]d\n4|12+0|low|batch|%[2]d\n5|5|off|batch|%[2]d\n6|6|gang|batch|%[2]d\n7|7|high|urgent|%[2]d\n8|8|low|batch|%[1]d\n'`, now, now-1000),
		"sacctmgr": `printf 'batch||cluster|\nurgent|batch|cluster|\nother||cancel|\nidle|batch,other|cluster|\n'`,
		"scancel":  `echo "scancel $*" >> ` + did,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Client{Scontrol: filepath.Join(dir, "scontrol"), Squeue: filepath.Join(dir, "squeue"), Timeout: time.Second}, did
}

func TestPreemptible(t *testing.T) {
	requeue := func(name string) Preemption { return Preemption{Name: name, Requeue: true} }
	others := []uint32{2, 3, 4, 5, 6, 7, 8}
	for _, tc := range []struct {
		kind, mode, exempt string
		job                uint32
		want               map[uint32]Preemption
	}{
		{"partition_prio", "REQUEUE", "00:00:00", 1, map[uint32]Preemption{2: requeue("2"), 3: requeue("8_3"), 8: requeue("8")}},
		{"partition_prio", "REQUEUE", "00:10:00", 1, map[uint32]Preemption{2: requeue("2"), 3: requeue("8_3")}},
		{"partition_prio", "REQUEUE", "00:00:00", 5, map[uint32]Preemption{}},
		{"qos", "REQUEUE", "NONE", 1, map[uint32]Preemption{2: requeue("2"), 5: requeue("5"), 6: requeue("6"), 8: requeue("8")}},
		{"qos", "CANCEL", "NONE", 1, map[uint32]Preemption{2: {Name: "2"}, 5: {Name: "5"}, 6: {Name: "6"}, 8: {Name: "8"}}},
		{"qos", "GANG,SUSPEND", "NONE", 1, map[uint32]Preemption{}},
		{"qos", "REQUEUE", "NONE", 3, map[uint32]Preemption{}},
		{"none", "OFF", "00:00:00", 1, nil},
	} {
		client, _ := ranks(t, tc.kind, tc.mode, tc.exempt)
		got, err := client.Preemptible(t.Context(), tc.job, others)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%+v: %v %s", tc, err, diff)
		}
	}
	client, _ := ranks(t, "qos", "REQUEUE", "NONE")
	if got, err := client.Preemptible(t.Context(), 99, others); err == nil {
		t.Errorf("of a job that does not run: %v", got)
	}
}

func TestPreempt(t *testing.T) {
	client, did := ranks(t, "qos", "REQUEUE", "NONE")
	for _, p := range []Preemption{{"8_3", true}, {"7", false}, {"9", true}} {
		if err := client.Preempt(t.Context(), p); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "8_[3-4]", "12+0", "-u root"} {
		if err := client.Preempt(t.Context(), Preemption{Name: name}); err == nil {
			t.Errorf("%q was preempted", name)
		}
	}
	text, err := os.ReadFile(did)
	want := "requeue Incomplete 8_3\nscancel 7\nrequeue Incomplete 9\nscancel 9\n"
	if diff := cmp.Diff(want, string(text)); err != nil || diff != "" || strings.Contains(string(text), "root") {
		t.Error(err, diff)
	}
}
