// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/metrics"
)

var gpu = device.GPU{UUID: "GPU-a", Index: 3, Minor: 1, Name: "NVIDIA H200", Type: "h200", MemMiB: 143771}

func figure[T any](value T) *T { return &value }

func sample() metrics.Node {
	return metrics.Node{
		Version: "1.2.3", Users: true,
		Sources: map[string]bool{"state": true, "inventory": true, "driver": true, "waiting": true, "counts": true},
		GPUs:    []metrics.GPU{{GPU: gpu, State: "ok", GrantedBytes: 3000 << 20, Slices: 1, MaxSlices: 10, GrantedRatio: 0.3, Unmetered: &metrics.Held{Bytes: 40 << 20, Processes: 2}}},
		Slices: []metrics.Slice{{Job: 12, UID: 1000, User: "ann", Account: "physics", GPU: gpu, LimitBytes: 3000 << 20, ShareRatio: 0.3, Policy: "cap", Priority: "latency",
			Isolation: "strict", Use: &metrics.Use{UsedBytes: 100 << 20, PeakBytes: 200 << 20, Refusals: 3},
			Steps: []metrics.Step{{Name: "batch", Use: metrics.Use{UsedBytes: 100 << 20}}}, DriverBytes: figure(uint64(101 << 20)), DutyRatio: figure(0.5),
			Counted: &metrics.Counted{GPUSeconds: 4.5, UnknownSeconds: 0.4, Freezes: 2, IsFrozen: true}}},
		VgpudRuns: figure(false),
		Waiting:   2, Refusals: map[string]uint64{"fragmentation": 7},
		Prologs: metrics.Histogram{Count: 3, Seconds: 0.2, Buckets: []metrics.Bucket{{Seconds: 0.1, Count: 2}, {Seconds: 1, Count: 3}}},
	}
}

var all = options{steps: true, compat: compat{jobstats: true, computeCanada: true}}

// text checks what is printed as Prometheus would. The node has gone from one program to the other.
func text(t *testing.T, node metrics.Node, options options) string {
	t.Helper()
	sent, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	var come metrics.Node
	if err := json.Unmarshal(sent, &come); err != nil {
		t.Fatal(err)
	}
	families, err := gather(come, options)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&said, family); err != nil {
			t.Fatal(err)
		}
	}
	problems, err := promlint.New(bytes.NewReader(said.Bytes())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		// Names that were given by others.
		if strings.HasPrefix(p.Metric, "slurm_vgpu_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	return said.String()
}

// Names, labels, help and types are what boards and alerts go by: a change of the file is one for each site.
func TestTheSeriesAreTheSame(t *testing.T) {
	want, err := os.ReadFile("testdata/series.prom")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text(t, sample(), all)); diff != "" {
		t.Errorf("(-as before, +now):\n%s", diff)
	}
}

func wantLines(t *testing.T, said string, lines ...string) {
	t.Helper()
	have := strings.Split(said, "\n")
	for _, line := range lines {
		if !slices.Contains(have, line) {
			t.Errorf("there is no line %q in:\n%s", line, said)
		}
	}
}

// A figure of a ledger that has no series would be seen by no board.
func TestEachFigureOfALedgerIsASeries(t *testing.T) {
	before := text(t, sample(), all)
	for i := range reflect.TypeFor[metrics.Use]().NumField() {
		node := sample()
		for _, use := range []*metrics.Use{node.Slices[0].Use, &node.Slices[0].Steps[0].Use} {
			reflect.ValueOf(use).Elem().Field(i).SetUint(77)
			said := text(t, node, all)
			if said == before {
				t.Errorf("%s of a slice, or of a step, is no series", reflect.TypeFor[metrics.Use]().Field(i).Name)
			}
			before = said
		}
		before = text(t, sample(), all)
	}
}

func TestWhatIsNotKnownIsNoSeries(t *testing.T) {
	node := sample()
	node.GPUs[0].Unmetered = nil
	node.Slices[0].DriverBytes, node.Slices[0].DutyRatio = nil, nil
	node.VgpudRuns, node.Slices[0].Counted = nil, nil
	node.Sources["waiting"], node.Sources["counts"] = false, false
	said := text(t, node, all)
	for _, name := range []string{"unmetered", "gpu_seconds_total{", "driver_bytes", "duty_cycle", "vgpud_up", "unknown_seconds", "freezes", "frozen", "utilization", "jobs_waiting", "refusals_total", "prolog_seconds"} {
		if strings.Contains(said, name) {
			t.Errorf("%s is told of:\n%s", name, said)
		}
	}
	wantLines(t, said, `slurm_vgpu_source_readable{source="counts"} 0`)
	node.Slices[0].Use = nil
	if said := text(t, node, all); strings.Contains(said, "slice_memory_used") || strings.Contains(said, "slice_refused") {
		t.Errorf("use of a slice whose ledger cannot be read:\n%s", said)
	}
}

func TestUsersAreNotNamedWhereTheSiteSaysSo(t *testing.T) {
	node := sample()
	node.Users = false
	said := text(t, node, all)
	for _, word := range []string{"ann", "physics", "1000"} {
		if strings.Contains(said, `"`+word+`"`) {
			t.Errorf("%s is named:\n%s", word, said)
		}
	}
	wantLines(t, said, `slurm_vgpu_slice_share_ratio{account="",gpu="3",gpu_uuid="GPU-a",jobid="12",user=""} 0.3`)
}

func TestStrangeNamesAndTwiceTheSameSlice(t *testing.T) {
	node := sample()
	node.Slices[0].Account = "a\"}\n\xff evil 1\n"
	node.Slices = append(node.Slices, node.Slices[0])
	node.Slices[1].LimitBytes = 7
	said := text(t, node, options{})
	wantLines(t, said, `slurm_vgpu_slice_memory_limit_bytes{account="a\"}\n� evil 1\n",gpu="3",gpu_uuid="GPU-a",jobid="12",user="ann"} 7`)
	text(t, metrics.Node{}, options{}) // of which nothing is known
}

func TestPromtoolTakesIt(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool; make test installs it")
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text(t, sample(), options{steps: true}))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestParseCompat(t *testing.T) {
	if c, err := parseCompat([]string{"jobstats", "computecanada"}); err != nil || c != all.compat {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := parseCompat([]string{"dcgm"}); err == nil || !strings.Contains(err.Error(), "--compat=dcgm: takes jobstats") {
		t.Errorf("of another: %v", err)
	}
}
