// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// When `vgpuctl set` returns, the change is in force: a job that looks then sees it, and so do
// processes that began before.
func TestChangeOfARunningJob(t *testing.T) {
	begin(t)
	set := "vgpuctl --config " + c.ConfigPath() + " --node n1 set "
	for _, name := range []string{"fill", "look", "end"} {
		os.Remove(filepath.Join(one.Home, name))
		defer os.Remove(filepath.Join(one.Home, name))
	}
	job := submit(t, one, "-n2 --gres=vgpu:1 --vgpu-mem=4000 --vgpu-cores=30", `exec 2>&1
		vgpu-fill --upto 1000 --hold-until end > fill &
		srun -n1 --overlap --vgpu-mem=1200 sh -c 'until [ -e end ]; do sleep 0.1; done; `+seen+`' > narrow &
		until [ -e look ]; do sleep 0.1; done
		`+seen+`; vgpu-fill; touch end; wait; echo narrow; cat narrow; rm narrow`)
	until(t, "a process and a step of the job", 60*time.Second, func() error {
		data, err := os.ReadFile(filepath.Join(one.Home, "fill"))
		if err == nil && !strings.Contains(string(data), "after 1000 MiB") {
			err = os.ErrNotExist
		}
		if err == nil {
			_, err = os.Stat(runDir("jobs", job, "steps", "0", "limits"))
		}
		return err
	})
	if result := run(t, one, set+job+" --mem 5000"); result.Code != 1 || !strings.Contains(result.Stderr, "only root may") {
		t.Errorf("the job's user: %s", result)
	}
	result := ok(t, root, set+job+" --mem 2500 --cores 50")
	if !strings.Contains(result.Stdout, "2500 MiB (was 4000), 50% (was 30%)") || !strings.Contains(result.Stdout, "0, batch") {
		t.Errorf("said: %s", result.Stdout)
	}
	if held := slicesOf(t, job); len(held) != 1 || held[0].MemMiB != 2500 || held[0].SMPercent != 50 {
		t.Errorf("the state: %+v", held)
	}
	if told := ok(t, one, reportCommand("n1", job)).Stdout; !strings.Contains(told, "from 4000 MiB and 30 % to 2500 MiB and 50 % at") {
		t.Errorf("the report of the running job does not say that it was changed:\n%s", told)
	}
	ok(t, one, "touch look")
	out := finish(t, one, job)
	first, rest, _ := strings.Cut(out, "\n")
	rest, narrow, _ := strings.Cut(rest, "narrow\n")
	if first != "2500" || strings.TrimSpace(narrow) != "1200" {
		t.Errorf("nvidia-smi in the job, then in a step that asked for 1200 MiB:\n%s", out)
	}
	if got := took(t, rest); got > 1500 {
		t.Errorf("beside 1000 MiB another %d MiB of 2500:\n%s", got, out)
	}
	u := awaitUsage(t, job, 60*time.Second)
	if d := u.VGPU.Nodes["n1"]; len(d) != 1 || d[0].MemMiB != 2500 || d[0].Cores != 50 {
		t.Errorf("AdminComment: %+v", u)
	}
	if told := ok(t, two, reportCommand("n2", job)).Stdout; !strings.Contains(told, "from 4000 MiB and 30 % to 2500 MiB and 50 % at") || !strings.Contains(told, "of 4000 MiB at most") {
		t.Errorf("the report elsewhere does not say that it was changed:\n%s", told)
	}
	if trail := account(t, job, "AllocTRES"); !strings.Contains(trail, "gres/gpumem=4000") {
		t.Errorf("what Slurm accounts changed: %s", trail)
	}
}
