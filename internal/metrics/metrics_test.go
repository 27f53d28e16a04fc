// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

var gpu = device.GPU{UUID: "GPU-a", Index: 3, Minor: 1, Name: "NVIDIA H200", Type: "h200", MemMiB: 143771}

func figure[T any](value T) *T { return &value }

func sample() Node {
	return Node{
		Version: "1.2.3",
		Sources: map[string]bool{"state": true, "inventory": true, "driver": true, "waiting": true, "counts": true},
		GPUs:    []GPU{{GPU: gpu, State: "ok", GrantedBytes: 3000 << 20, Slices: 1, MaxSlices: 10, GrantedRatio: 0.3, Unmetered: &Held{40 << 20, 2}}},
		Slices: []Slice{{Job: 12, UID: 1000, User: "ann", Account: "physics", GPU: gpu, LimitBytes: 3000 << 20, ShareRatio: 0.3, Policy: "cap", Priority: "latency",
			Isolation: "strict", Use: &Use{UsedBytes: 100 << 20, PeakBytes: 200 << 20, Refusals: 3},
			Steps: []Step{{"batch", Use{UsedBytes: 100 << 20}}}, DriverBytes: figure(uint64(101 << 20)), DutyRatio: figure(0.5),
			Counted: &Counted{GPUSeconds: 4.5, UnknownSeconds: 0.4, Freezes: 2, IsFrozen: true}}},
		VgpudRuns: figure(false),
		Waiting:   2, Refusals: map[string]uint64{"fragmentation": 7},
		Prologs: Histogram{Count: 3, Seconds: 0.2, Buckets: map[float64]uint64{0.1: 2, 1: 3}},
	}
}

var all = Options{Users: true, Steps: true, Compat: Compat{Jobstats: true, ComputeCanada: true}}

// text checks what is printed as Prometheus would, with promtool too where there is one.
func text(t *testing.T, node Node, options Options) string {
	t.Helper()
	said := Text(node, options)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(said))
	if err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	var again bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if _, err := expfmt.MetricFamilyToText(&again, families[name]); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(again.String(), string(said)); diff != "" {
		t.Errorf("Prometheus' own library writes it otherwise (-theirs, +ours):\n%s", diff)
	}
	problems, err := promlint.New(bytes.NewReader(said)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		// Names that were given by others.
		if strings.HasPrefix(p.Metric, "slurm_vgpu_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	return string(said)
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

func TestEachFigureHasItsSeries(t *testing.T) {
	const labels = `{account="physics",gpu="3",gpu_uuid="GPU-a",jobid="12",user="ann"}`
	wantLines(t, text(t, sample(), all),
		`slurm_vgpu_gpu_memory_granted_bytes{gpu="3",gpu_uuid="GPU-a"} 3.145728e+09`,
		`slurm_vgpu_gpu_unmetered_memory_bytes{gpu="3",gpu_uuid="GPU-a"} 4.194304e+07`,
		`slurm_vgpu_gpu_unmetered_processes{gpu="3",gpu_uuid="GPU-a"} 2`,
		`slurm_vgpu_slice_memory_limit_bytes`+labels+` 3.145728e+09`,
		`slurm_vgpu_slice_memory_used_bytes`+labels+` 1.048576e+08`,
		`slurm_vgpu_slice_memory_peak_bytes`+labels+` 2.097152e+08`,
		`slurm_vgpu_slice_memory_driver_bytes`+labels+` 1.05906176e+08`,
		`slurm_vgpu_slice_share_ratio`+labels+` 0.3`,
		`slurm_vgpu_slice_gpu_seconds_total`+labels+` 4.5`,
		`slurm_vgpu_slice_refused_allocations_total`+labels+` 3`,
		`slurm_vgpu_slice_info{account="physics",gpu="3",gpu_uuid="GPU-a",isolation="strict",jobid="12",policy="cap",priority="latency",user="ann"} 1`,
		`slurm_vgpu_slice_unknown_seconds_total`+labels+` 0.4`,
		`slurm_vgpu_slice_freezes_total`+labels+` 2`,
		`slurm_vgpu_slice_frozen`+labels+` 1`,
		`slurm_vgpu_vgpud_up 0`,
		`slurm_vgpu_step_memory_used_bytes{account="physics",gpu="3",gpu_uuid="GPU-a",jobid="12",step="batch",user="ann"} 1.048576e+08`,
		`slurm_vgpu_placement_refusals_total{reason="fragmentation"} 7`,
		`slurm_vgpu_prolog_seconds_bucket{le="0.1"} 2`,
		`slurm_vgpu_prolog_seconds_count 3`,
		`slurm_vgpu_jobs_waiting 2`,
		`nvidia_gpu_duty_cycle{jobid="12",minor_number="1",name="NVIDIA H200",ordinal="3",userid="1000",uuid="GPU-a"} 50`,
		`nvidia_gpu_memory_total_bytes{jobid="12",minor_number="1",name="NVIDIA H200",ordinal="3",userid="1000",uuid="GPU-a"} 3.145728e+09`,
		`slurm_job_utilization_gpu{account="physics",gpu="3",gpu_type="NVIDIA H200",slurmjobid="12",user="ann"} 50`,
	)
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
	said := text(t, sample(), Options{Steps: true, Compat: all.Compat})
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
	said := text(t, node, Options{Users: true})
	wantLines(t, said, `slurm_vgpu_slice_memory_limit_bytes{account="a\"}\n? evil 1\n",gpu="3",gpu_uuid="GPU-a",jobid="12",user="ann"} 7`)
	text(t, Node{}, Options{}) // of which nothing is known
}

func TestPromtoolTakesIt(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool; make test installs it")
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text(t, sample(), Options{Users: true, Steps: true}))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestParseCompat(t *testing.T) {
	if c, err := ParseCompat([]string{"jobstats", "computecanada"}); err != nil || c != all.Compat {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ParseCompat([]string{"dcgm"}); err == nil || !strings.Contains(err.Error(), "--compat=dcgm: takes jobstats") {
		t.Errorf("of another: %v", err)
	}
}
