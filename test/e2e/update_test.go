// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// What is counted for a job is what it gets, also after its GRES were changed.
func TestGRESOfAPendingJobAreChanged(t *testing.T) {
	begin(t)
	for _, tc := range []struct {
		options, gres string
		mem           string // what the job then has; "": the change is refused
		reason        string
	}{
		{"--vgpu-mem=2000 --vgpu-cores=20", "vgpu:1,gpumem:9000,gpucores:50", "", "the job was submitted with --vgpu-mem=2000, which holds each slice to 2000 MiB: the most is gpumem:2000"},
		{"--vgpu-mem=2000 --vgpu-cores=20", "vgpu:1,gpumem:2000,gpucores:50", "", "the job was submitted with --vgpu-cores=20"},
		{"--vgpu-mem=2000 --vgpu-cores=20", "vgpu:1,gpumem:1000", "1000", ""},
		{"--vgpu-mem=2000", "vgpu:2", "2000\n2000", ""},
		{"--vgpu-mem=25%", "vgpu:1,gpumem:40000", "", "the job was submitted with --vgpu-mem=25%"},
		{"--gres=vgpu:1,gpumem:2000", "vgpu:1,gpumem:9000", "9000", ""},
		{"--vgpu-mem=2000", "", "", "Slurm goes on counting vgpu of a job that has it"},
		{"--vgpu-mem=2000", "none", "", ""},
		{"--vgpu-mem=2000", "gpumem:8G", "", "write gpumem:8192"},
	} {
		before, _ := os.ReadFile(c.Home.Path("log", "slurmctld.log"))
		job := submit(t, one, "-H --gres=vgpu:1 "+tc.options, seen)
		result := run(t, one, "scontrol update JobId="+job+" gres="+tc.gres)
		if refused := result.Code != 0; refused != (tc.mem == "") {
			t.Errorf("%s, then gres=%s: %s", tc.options, tc.gres, result)
		}
		// 22.05 has no way to tell whoever updates; the reason is in slurmctld's log.
		log, _ := os.ReadFile(c.Home.Path("log", "slurmctld.log"))
		if said := result.Stderr + string(log[len(before):]); !strings.Contains(said, tc.reason) {
			t.Errorf("%s, then gres=%s: no reason %q in:\n%s", tc.options, tc.gres, tc.reason, said)
		}
		ok(t, one, "scontrol release "+job)
		want := tc.mem
		if want == "" {
			want = "2000"
			if strings.Contains(tc.options, "25%") {
				want = fmt.Sprint(gpuMiB / 4)
			}
		}
		if got := strings.TrimSpace(finish(t, one, job)); got != want {
			t.Errorf("%s, then gres=%s: the job sees %q, want %q", tc.options, tc.gres, got, want)
		}
		total := 0
		for field := range strings.FieldsSeq(want) {
			var mib int
			fmt.Sscan(field, &mib)
			total += mib
		}
		wantTRES(t, job, "AllocTRES", fmt.Sprintf("gres/gpumem=%d", total))
	}
}
