// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// jobReport is what `vgpuctl report --json` prints.
type jobReport struct {
	User string `json:"user"`
	Runs []struct {
		State  string `json:"state"`
		Slices []struct {
			Node       string   `json:"node"`
			MemMiB     int64    `json:"mem_mib"`
			UsedMiB    *int64   `json:"used_mib"`
			PeakMiB    int64    `json:"peak_mib"`
			Refusals   uint64   `json:"refusals"`
			GPUSeconds *float64 `json:"gpu_seconds"`
			Most       *float64 `json:"most_share_percent"`
			Timeline   []struct {
				UsedMiB int64 `json:"mem_mib"`
				BusyMs  int64 `json:"busy_ms"`
			} `json:"timeline"`
		} `json:"slices"`
		Notes []struct {
			Rule string `json:"rule"`
		} `json:"notes"`
	} `json:"runs"`
}

// says checks what is known of the job below, whoever tells it.
func (r jobReport) says(state string) error {
	if len(r.Runs) != 1 || r.Runs[0].State != state || len(r.Runs[0].Slices) != 1 {
		return fmt.Errorf("want one run that is %s: %+v", state, r)
	}
	s := r.Runs[0].Slices[0]
	if s.MemMiB != 3000 || s.PeakMiB < 2000 || s.PeakMiB > 3000 || s.Refusals < 1 || s.GPUSeconds == nil || *s.GPUSeconds < 1 {
		return fmt.Errorf("the slice is %+v", s)
	}
	if s.Node != "n1" || s.Most == nil || *s.Most <= 0 || len(s.Timeline) < 2 {
		return fmt.Errorf("the slice over time is %+v", s)
	}
	var busyMs, most int64
	for _, p := range s.Timeline {
		busyMs, most = busyMs+p.BusyMs, max(most, p.UsedMiB)
	}
	if busyMs < 1000 || most < 2000 {
		return fmt.Errorf("the time line has %d ms and %d MiB: %+v", busyMs, most, s.Timeline)
	}
	rules := fmt.Sprint(r.Runs[0].Notes)
	if !strings.Contains(rules, "memory-refused") {
		return fmt.Errorf("the notes are %s", rules)
	}
	return nil
}

func reportCommand(node, job string) string {
	return "vgpuctl --config " + c.ConfigPath() + " --node " + node + " report " + job
}

func reported(t *testing.T, u cluster.User, node, job string) (r jobReport, err error) {
	t.Helper()
	result := run(t, u, reportCommand(node, job)+" --json")
	if result.Code != 0 {
		return r, fmt.Errorf("%s", result)
	}
	if err := json.Unmarshal([]byte(result.Stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, result.Stdout)
	}
	return r, nil
}

// TestAUserIsToldWhatHisJobDid: while it runs, on its node and in it, to him alone; and when it has ended, from the
// database, to whom sacct shows it.
func TestAUserIsToldWhatHisJobDid(t *testing.T) {
	begin(t)
	busy, line := busyIn(t, one, "reported")
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30",
		"vgpu-fill --step 4000; vgpu-fill --upto 1500 --hold-until reported.end & "+line+"; wait")
	until(t, "a time line", 90*time.Second, func() error {
		if !c.HasControl() { // there is no vgpud, which samples by itself: root's hand has more rights than its
			ok(t, root, "vgpuctl --config "+c.ConfigPath()+" --node n1 sample")
		}
		r, err := reported(t, one, "n1", job)
		if err == nil {
			err = r.says("RUNNING")
		}
		return err
	})
	if r, err := reported(t, one, "n1", job); err != nil || r.User != one.Name || r.Runs[0].Slices[0].UsedMiB == nil {
		t.Errorf("while it runs: %+v, %v", r, err)
	}
	if other := run(t, two, reportCommand("n1", job)); other.Code != 1 || other.Stdout != "" || !strings.Contains(other.Stderr, "it is "+one.Name+"'s and runs") {
		t.Errorf("another user is told %s", other)
	}
	inside := ok(t, one, "srun --jobid="+job+" --overlap "+reportCommand("n1", job)+" --plot")
	for _, want := range []string{"job " + job + " of " + one.Name, "memory in MiB, limit 3000", "percent of the GPU's time, cap 30"} {
		if !strings.Contains(inside.Stdout, want) {
			t.Errorf("inside the job there is no %q: %s", want, inside)
		}
	}
	drawn := filepath.Join(one.Home, "report.svg")
	t.Cleanup(func() { _ = os.Remove(drawn) })
	ok(t, one, reportCommand("n1", job)+" --svg report.svg")
	if texts := svgTexts(t, drawn); !slices.Contains(texts, "limit, 3000 MiB") || !slices.Contains(texts, "cap, 30 %") {
		t.Errorf("the picture says %q", texts)
	}

	busy.end()
	finish(t, one, job)
	for _, u := range []cluster.User{one, two} { // sacct shows all jobs here
		until(t, "the report of the ended job", 60*time.Second, func() error {
			r, err := reported(t, u, "n2", job)
			if err == nil {
				err = r.says("COMPLETED")
			}
			return err
		})
	}
	if text := ok(t, one, reportCommand("n2", job)+" --plot").Stdout; !strings.Contains(text, "completed at ") || !strings.Contains(text, "limit 3000") {
		t.Errorf("when it has ended: %s", text)
	}
	if r, err := reported(t, root, "n1", job); err != nil || r.says("COMPLETED") != nil || r.User != one.Name {
		t.Errorf("root is told %+v, %v, %v", r, err, r.says("COMPLETED"))
	}
}

func svgTexts(t *testing.T, path string) (texts []string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dec := xml.NewDecoder(file)
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatalf("%s is not well-formed: %v", path, err)
		}
		if text, is := token.(xml.CharData); is {
			texts = append(texts, strings.TrimSpace(string(text)))
		}
	}
}
