// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// twoSlices is a job that asked for --vgpu-mem=3000 --vgpu-cores=30 and got two GPUs.
func twoSlices() Grant {
	return Grant{Version: Version, Job: 12, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Node: "n1", BootID: "b",
		Since: time.Now().UTC().Add(-3 * time.Hour).Truncate(time.Second), Request: "mem=3000;cores=30",
		Slices: []device.Slice{
			{Device: "GPU-aaaaaaaa-1", Index: 0, Minor: 4, MemMiB: 3000, SMPercent: 30},
			{Device: "GPU-bbbbbbbb-2", Index: 2, Minor: 6, MemMiB: 3000, SMPercent: 30},
		},
		NodeGPUsMiB: []int64{10000, 20000}, GPUTypes: []string{"h200", "l40s"}, MaskMinors: []device.Minor{5},
		Policy: request.PolicyCap, Isolation: IsolationStrict, Library: "/usr/lib/l.so", DeviceDir: "/dev"}
}

func ask(t testing.TB, wire string) request.Request {
	t.Helper()
	req, err := request.Decode(wire)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestGrantRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grant.json")
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	want := twoSlices()
	if err := Write(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("writable by others: %v", err)
	}
	if err := Write(path, want); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err != nil {
		t.Errorf("written again: %v", err)
	}
}

func TestGrantsThatMakeNoSenseAreNeitherWrittenNorRead(t *testing.T) {
	for name, change := range map[string]func(*Grant){
		"no job":      func(g *Grant) { g.Job = 0 },
		"nothing":     func(g *Grant) { g.Slices = nil },
		"both":        func(g *Grant) { g.Refusal = "no" },
		"no memory":   func(g *Grant) { g.Slices[1].MemMiB = 0 },
		"much time":   func(g *Grant) { g.Slices[1].SMPercent = 101 },
		"many slices": func(g *Grant) { g.Slices = make([]device.Slice, 17) },
		"no device":   func(g *Grant) { g.Slices[0].Device = "" },
	} {
		g := twoSlices()
		change(&g)
		if err := Write(filepath.Join(t.TempDir(), "grant.json"), g); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	for _, text := range []string{"", "{", `{"version":2,"job":1,"refusal":"x"}`, `{"version":1,"job":-1}`, "null"} {
		path := filepath.Join(t.TempDir(), "grant.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); !errors.Is(err, ErrGrant) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestNarrow(t *testing.T) {
	type step struct {
		mem  int64
		sm   int
		mine bool
	}
	all := []step{{3000, 30, true}, {3000, 30, true}}
	for _, tc := range []struct {
		ask    string
		want   []step
		policy request.Policy
		says   string // in the error
	}{
		{ask: "", want: all},
		{ask: "mem=3000;cores=30", want: all},
		{ask: "mem=1000", want: []step{{1000, 30, true}, {1000, 30, true}}},
		{ask: "mem=10%", want: []step{{1000, 30, true}, {2000, 30, true}}},
		{ask: "mem=4000", says: "--vgpu-mem=4000M is more than the job's slice of 3000 MiB"},
		{ask: "mem=20%", says: "--vgpu-mem=20%, 4000 MiB of this GPU, is more than the job's slice of 3000 MiB"},
		{ask: "cores=10", want: []step{{3000, 10, true}, {3000, 10, true}}},
		{ask: "cores=31", says: "--vgpu-cores=31 is more than the job's share of 30 percent"},
		{ask: "cores=0", says: "--vgpu-cores=0 (no cap) is more than the job's share of 30 percent"},
		{ask: "uuid=GPU-bbbbbbbb", want: []step{{3000, 30, false}, {3000, 30, true}}},
		{ask: "uuid=!GPU-bbbbbbbb", want: []step{{3000, 30, true}, {3000, 30, false}}},
		{ask: "uuid=GPU-cccccccc", says: "--vgpu-uuid=GPU-cccccccc: the job holds no such GPU here; it holds GPU-aaaaaaaa-1 (h200), GPU-bbbbbbbb-2 (l40s)"},
		{ask: "gpu=l40s", want: []step{{3000, 30, false}, {3000, 30, true}}},
		{ask: "gpu=a100", says: "--vgpu-gpu=a100: the job holds no such GPU here"},
		// 20 % is too much of the other GPU only.
		{ask: "mem=20%;gpu=h200", want: []step{{2000, 30, true}, {3000, 30, false}}},
		{ask: "place=spread", want: all},
		{ask: "policy=cap", want: all},
		{ask: "policy=elastic", says: "--vgpu-policy=elastic is more than the job's policy"},
	} {
		t.Run(tc.ask, func(t *testing.T) {
			slices, policy, err := twoSlices().Narrow(ask(t, tc.ask))
			if tc.says != "" {
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []step
			for _, s := range slices {
				got = append(got, step{s.StepMemMiB, s.StepSM, s.Mine})
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(step{})); diff != "" || policy != request.PolicyCap {
				t.Errorf("policy %s, %s", policy, diff)
			}
		})
	}
}

func TestWhatAStepInheritsFromItsJobIsNoError(t *testing.T) {
	// The entitlement was smaller than the request: srun inside the job repeats the request all the same.
	g := twoSlices()
	g.Request = "mem=50%;cores=80;policy=elastic;gpu=h200;uuid=GPU-dddddddd"
	g.Policy = request.PolicyElastic
	slices, policy, err := g.Narrow(ask(t, g.Request))
	if err != nil {
		t.Fatal(err)
	}
	if policy != request.PolicyElastic || slices[0].StepMemMiB != 3000 || slices[0].StepSM != 30 || !slices[1].Mine {
		t.Errorf("got %+v, %s", slices, policy)
	}
}

func TestAStepOfAJobWithTheLeastShareHasNoMore(t *testing.T) {
	g := twoSlices()
	g.Slices[0].SMPercent, g.Slices[1].SMPercent, g.Request = 1, 1, ""
	for asked, fine := range map[string]bool{"cores=1": true, "cores=2": false, "cores=0": false, "": true} {
		if slices, _, err := g.Narrow(ask(t, asked)); (err == nil) != fine || fine && slices[0].StepSM != 1 {
			t.Errorf("%q: %+v, %v", asked, slices, err)
		}
	}
}

func TestRefusedJobHasNothingToNarrow(t *testing.T) {
	g := twoSlices()
	g.Slices, g.Refusal = nil, "no GPU has 3000 MiB free"
	if _, _, err := g.Narrow(request.Request{}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), g.Refusal) {
		t.Errorf("got %v", err)
	}
}

// A step may have its job's priority or a lower one, which stands among what it asked for.
func TestAStepsPriority(t *testing.T) {
	for _, tc := range []struct {
		job   device.Priority
		asked string
		want  device.Priority
		says  string
	}{
		{device.PriorityLatency, "", device.PriorityLatency, ""},
		{device.PriorityLatency, "priority=latency", device.PriorityLatency, ""},
		{device.PriorityLatency, "priority=normal", device.PriorityNormal, ""},
		{device.PriorityLatency, "priority=batch", device.PriorityBatch, ""},
		{device.PriorityNormal, "priority=batch", device.PriorityBatch, ""},
		{device.PriorityNormal, "priority=latency", 0, "--vgpu-priority=latency is more than the job's priority, which is normal"},
		{device.PriorityBatch, "", device.PriorityBatch, ""},
		{device.PriorityBatch, "priority=normal", 0, "--vgpu-priority=normal is more than the job's priority, which is batch"},
	} {
		g := twoSlices()
		g.Request = ""
		for i := range g.Slices {
			g.Slices[i].Priority = tc.job
		}
		slices, _, err := g.Narrow(ask(t, tc.asked))
		switch {
		case tc.says != "":
			if err == nil || err.Error() != tc.says {
				t.Errorf("%s in a job of %s: %v", tc.asked, tc.job, err)
			}
		case err != nil || slices[0].StepPriority != tc.want || slices[1].StepPriority != tc.want:
			t.Errorf("%s in a job of %s: %+v, %v", tc.asked, tc.job, slices, err)
		}
	}
	lowered := twoSlices() // by vgpuctl set, after the job had begun
	lowered.Request = "priority=latency"
	if slices, _, err := lowered.Narrow(ask(t, lowered.Request)); err != nil || slices[0].StepPriority != device.PriorityNormal {
		t.Errorf("what is repeated of the job's request: %+v, %v", slices, err)
	}
}

// No step has more than its job, whatever it asks.
func TestNarrowNeverWidens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := twoSlices()
		g.Slices[0].MemMiB = rapid.Int64Range(1, 10000).Draw(t, "mem")
		g.Slices[0].SMPercent = rapid.IntRange(0, 100).Draw(t, "sm")
		req := request.Request{SMPercent: rapid.IntRange(0, 100).Draw(t, "cores"), Uncapped: rapid.Bool().Draw(t, "uncapped"),
			Policy: rapid.SampledFrom([]request.Policy{"", request.PolicyCap, request.PolicyElastic}).Draw(t, "policy")}
		if rapid.Bool().Draw(t, "percent") {
			req.Mem.Percent = rapid.Float64Range(0.1, 100).Draw(t, "pct")
		} else {
			req.Mem.MiB = rapid.Int64Range(0, 20000).Draw(t, "mib")
		}
		slices, policy, err := g.Narrow(req)
		if err != nil {
			return
		}
		for _, s := range slices {
			if s.StepMemMiB <= 0 || s.StepMemMiB > s.MemMiB || s.SMPercent > 0 && (s.StepSM == 0 || s.StepSM > s.SMPercent) {
				t.Errorf("%+v widens", s)
			}
		}
		if policy != request.PolicyCap {
			t.Errorf("policy %s", policy)
		}
	})
}
