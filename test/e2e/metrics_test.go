// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// series are metrics by name, read as Prometheus reads them.
type series map[string]*dto.MetricFamily

func parse(t *testing.T, text string) series {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return found
}

// value is that of the one series with these labels: NAME=VALUE….
func (s series) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	var values []float64
	for _, m := range s[name].GetMetric() {
		has := make(map[string]bool)
		for _, l := range m.GetLabel() {
			has[l.GetName()+"="+l.GetValue()] = true
		}
		all := true
		for _, l := range labels {
			all = all && has[l]
		}
		if all {
			values = append(values, m.GetGauge().GetValue()+m.GetCounter().GetValue())
		}
	}
	if len(values) != 1 {
		t.Fatalf("%d series %s with %v, want one: %v", len(values), name, labels, s[name])
	}
	return values[0]
}

func metricsOf(node, options string) string { return exporter(node, "--text "+options) }

func exporter(node, options string) string {
	return "vgpu-exporter --config " + c.ConfigPath() + " --node " + node + " " + options
}

// exported begins the exporter of n1.
func exported(t *testing.T) (address string) {
	t.Helper()
	address = freePort(t)
	ctx, stop := context.WithCancel(context.Background())
	cmd := c.Command(ctx, root, "exec "+exporter("n1", "--listen "+address))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = cmd.Wait() })
	until(t, "the exporter", 60*time.Second, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return address
}

func scrape(address string) (string, error) {
	client := http.Client{Timeout: 30 * time.Second}
	response, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}

// hostile opens connections that send nothing, garbage, a header without end and a request that drips, and stays.
func hostile(t *testing.T, address string) {
	t.Helper()
	for _, text := range []string{"", "", "\x00\xff\x16\x03", "GET /metrics HTTP/1.1\r\nX: ", strings.Repeat("A", 1<<20), "POST /metrics HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // a full window must not hold the test
		_, _ = io.WriteString(conn, text)                      // the other end may have had enough
	}
}

// mapJobs has the node tell DCGM which jobs its GPUs have, and says in which file that is for a GPU.
func mapJobs(t *testing.T) (file func(s slice) string) {
	t.Helper()
	folder, config := c.Home.Path("jobmap"), c.ConfigPath()
	before, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(config, before, 0o644) })
	if err := os.WriteFile(config, fmt.Appendf(before, "dcgm_job_map: %s\n", folder), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(s slice) string { return fmt.Sprintf("%s/%d", folder, s.Index) }
}

// awaitUsed waits until the metrics tell of 500 MiB of a slice, and of its GPU time.
func awaitUsed(t *testing.T, labels []string) (said series, used float64) {
	t.Helper()
	const name = "slurm_vgpu_slice_memory_used_bytes"
	until(t, "memory of the job in the metrics", 60*time.Second, func() error {
		text := ok(t, root, metricsOf("n1", "--steps --compat=jobstats,computecanada --over 100ms")).Stdout
		if said = parse(t, text); len(said[name].GetMetric()) == 0 {
			return fmt.Errorf("there is none:\n%s", text)
		}
		if used = said.value(t, name, labels...); used < 500<<20 {
			return fmt.Errorf("%v bytes", used)
		}
		if len(said["slurm_job_utilization_gpu"].GetMetric()) == 0 { // before vgpud has looked a second time
			return errors.New("nothing of its GPU time")
		}
		return nil
	})
	return said, used
}

// TestMetricsSayWhatTheSliceHas: the metrics of a job that holds memory are what the slice has, the cluster's view says
// the same, and strangers at the port keep nobody away.
func TestMetricsSayWhatTheSliceHas(t *testing.T) {
	begin(t)
	mapOf := mapJobs(t)
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", "vgpu-fill --quiet --upto 500 --hold-until never")
	held := slicesOf(t, job)[0]
	labels := []string{"jobid=" + job, "user=" + one.Name, "gpu_uuid=" + held.Device}
	said, used := awaitUsed(t, labels)
	wantFigures(t, said, job, labels, used)
	if got := said.value(t, "slurm_vgpu_gpu_memory_granted_bytes", "gpu_uuid="+held.Device); got != 3000<<20 {
		t.Errorf("%v bytes granted", got)
	}
	if got := said["slurm_vgpu_prolog_seconds"].GetMetric()[0].GetHistogram().GetSampleCount(); got < 1 {
		t.Errorf("%d prologs", got)
	}
	if jobs, err := os.ReadFile(mapOf(held)); err != nil || string(jobs) != job+"\n" {
		t.Errorf("DCGM is told of %q, %v", jobs, err)
	}
	promtool(t)
	seenByTheCluster(t)
	othersSeeNothing(t, job)
	address := exported(t)
	hostile(t, address)
	text, err := scrape(address)
	if err != nil {
		t.Fatalf("beside strangers: %v", err)
	}
	if got := parse(t, text).value(t, "slurm_vgpu_slice_memory_used_bytes", labels...); got != used {
		t.Errorf("the exporter says %v bytes, want %v", got, used)
	}
	ok(t, root, "scancel "+job)
	until(t, "the end of the job's mapping", 60*time.Second, func() error {
		if _, err := os.Stat(mapOf(held)); !os.IsNotExist(err) {
			return errors.New("it is there")
		}
		return nil
	})
}

func wantFigures(t *testing.T, said series, job string, labels []string, used float64) {
	t.Helper()
	for name, want := range map[string]float64{
		"slurm_vgpu_slice_memory_limit_bytes": 3000 << 20, "slurm_vgpu_slice_share_ratio": 0.3, "slurm_vgpu_slice_memory_peak_bytes": used,
		"slurm_vgpu_slice_memory_driver_bytes": used, "slurm_vgpu_slice_refused_allocations_total": 0, "slurm_vgpu_slice_gpu_seconds_total": 0,
	} {
		if got := said.value(t, name, labels...); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := said.value(t, "slurm_vgpu_slice_info", append(labels, "policy=cap", "isolation="+c.Isolation, "account="+strings.TrimSpace(ok(t, root, "squeue -h -o %a -j "+job).Stdout))...); got != 1 {
		t.Errorf("slice_info is %v", got)
	}
	if got := said.value(t, "slurm_vgpu_step_memory_used_bytes", append(labels, "step=batch")...); got != used {
		t.Errorf("the step's memory is %v, want %v", got, used)
	}
	if got := said.value(t, "nvidia_gpu_memory_used_bytes", "jobid="+job, fmt.Sprint("userid=", one.UID)); got != used {
		t.Errorf("jobstats' memory is %v, want %v", got, used)
	}
	if got := said.value(t, "slurm_job_utilization_gpu", "slurmjobid="+job, "user="+one.Name); got != 0 {
		t.Errorf("a job that computes nothing is at %v %%", got)
	}
}

// promtool looks at the metrics, where there is one.
func promtool(t *testing.T) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		return
	}
	cmd := exec.Command(program, "check", "metrics")
	cmd.Stdin = strings.NewReader(ok(t, root, metricsOf("n1", "--steps")).Stdout)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v: %s", err, out)
	}
}

// seenByTheCluster asks the controller as a user.
func seenByTheCluster(t *testing.T) {
	t.Helper()
	type node struct {
		Node    string
		GPUs    int
		Granted struct {
			VGPU      int   `json:"vgpu"`
			MemMiB    int64 `json:"gpumem_mib"`
			SMPercent int   `json:"gpucores"`
		}
		Free struct {
			MemMiB int64 `json:"gpumem_mib"`
		}
		Fits   int64 `json:"fits_mib"`
		MayFit int64 `json:"may_fit_mib"`
	}
	var cluster struct{ Nodes []node }
	said := ok(t, two, "vgpuctl --config "+c.ConfigPath()+" nodes --json").Stdout
	if err := json.Unmarshal([]byte(said), &cluster); err != nil || len(cluster.Nodes) < 2 {
		t.Fatalf("%v: %s", err, said)
	}
	byName := map[string]node{}
	for _, n := range cluster.Nodes {
		byName[n.Node] = n
	}
	n1, n2 := byName["n1"], byName["n2"]
	size := n2.Free.MemMiB / int64(max(n2.GPUs, 1))
	if n1.Granted.VGPU != 1 || n1.Granted.MemMiB != 3000 || n1.Granted.SMPercent != 30 || n1.MayFit != size || n1.Fits != (2*size-3000+1)/2 {
		t.Errorf("n1 is %+v", n1)
	}
	if n2.Granted.VGPU != 0 || n2.GPUs != 2 || n2.Fits != size || n2.MayFit != size {
		t.Errorf("n2 is %+v", n2)
	}
}

// othersSeeNothing of what a job uses.
func othersSeeNothing(t *testing.T, job string) {
	t.Helper()
	said := ok(t, two, metricsOf("n1", "")).Stdout
	for line := range strings.Lines(said) {
		if strings.Contains(line, `jobid="`+job+`"`) && (strings.Contains(line, "used_bytes") || strings.Contains(line, "driver_bytes")) {
			t.Errorf("another user is told: %s", line)
		}
	}
}
