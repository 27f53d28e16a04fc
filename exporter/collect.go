// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/metrics"
)

// options choose among the series.
type options struct {
	steps  bool // steps have series of their own
	compat compat
}

// family is one metric.
type family struct {
	kind prometheus.ValueType
	desc *prometheus.Desc
}

func own(kind prometheus.ValueType, name, help string, labels ...string) family {
	return named(kind, "slurm_vgpu_"+name, help, labels...)
}

func named(kind prometheus.ValueType, name, help string, labels ...string) family {
	return family{kind, prometheus.NewDesc(name, help, labels, nil)}
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

var (
	ofGPU   = []string{"gpu_uuid", "gpu"}
	ofSlice = []string{"jobid", "user", "account", "gpu_uuid", "gpu"}
	ofStep  = append(slices.Clone(ofSlice), "step")

	buildInfo = own(gauge, "build_info", "Which release says this; always 1.", "version")
	source    = own(gauge, "source_readable", "Whether what the figures are made of could be read: 1 or 0. Series that need it are missing at 0.", "source")

	gpuInfo        = own(gauge, "gpu_info", "A GPU of this node, its type and whether it takes slices; always 1.", append(slices.Clone(ofGPU), "type", "state")...)
	gpuMemory      = own(gauge, "gpu_memory_bytes", "Memory of the GPU.", ofGPU...)
	gpuGranted     = own(gauge, "gpu_memory_granted_bytes", "Memory of the GPU that is granted to slices.", ofGPU...)
	gpuShare       = own(gauge, "gpu_share_granted_ratio", "Share of the GPU's time that is granted to slices; slices without a cap count as none.", ofGPU...)
	gpuSlices      = own(gauge, "gpu_slices", "Slices on the GPU.", ofGPU...)
	gpuMaxSlices   = own(gauge, "gpu_slices_limit", "Slices that the GPU may have (slices_per_gpu).", ofGPU...)
	gpuUnmetered   = own(gauge, "gpu_unmetered_memory_bytes", "Memory of the GPU held by processes without a slice of it, by the driver's word.", ofGPU...)
	gpuUnmeteredBy = own(gauge, "gpu_unmetered_processes", "Processes that hold memory of the GPU without a slice of it, by the driver's word.", ofGPU...)

	sliceInfo    = own(gauge, "slice_info", "How a slice is limited; always 1.", append(slices.Clone(ofSlice), "policy", "priority", "isolation")...)
	sliceLimit   = own(gauge, "slice_memory_limit_bytes", "Memory that the slice may use.", ofSlice...)
	sliceUsed    = own(gauge, "slice_memory_used_bytes", "Memory that the slice uses, by its ledger.", ofSlice...)
	slicePeak    = own(gauge, "slice_memory_peak_bytes", "Most memory that the slice has used, by its ledger.", ofSlice...)
	sliceDriver  = own(gauge, "slice_memory_driver_bytes", "Memory that the processes of the slice's job hold of the GPU, by the driver's word.", ofSlice...)
	sliceShare   = own(gauge, "slice_share_ratio", "Share of the GPU's time that the slice may use; 0: no cap.", ofSlice...)
	sliceSeconds = own(counter, "slice_gpu_seconds_total", "GPU time that the slice has used. Missing where vgpud has not looked at it.", ofSlice...)
	sliceUnknown = own(counter, "slice_unknown_seconds_total", "Time in which the slice's use was not counted, as vgpud was away.", ofSlice...)
	sliceFreezes = own(counter, "slice_freezes_total", "How often a step of the slice was frozen for taking more than its share.", ofSlice...)
	sliceFrozen  = own(gauge, "slice_frozen", "Whether a step of the slice is frozen now: 1 or 0.", ofSlice...)
	sliceRefused = own(counter, "slice_refused_allocations_total", "Allocations that the slice's limit has refused.", ofSlice...)

	stepUsed    = own(gauge, "step_memory_used_bytes", "Memory that the step uses of the slice, by its ledger.", ofStep...)
	stepPeak    = own(gauge, "step_memory_peak_bytes", "Most memory that the step has used of the slice, by its ledger.", ofStep...)
	stepRefused = own(counter, "step_refused_allocations_total", "Allocations of the step that a limit has refused.", ofStep...)

	vgpudUp     = own(gauge, "vgpud_up", "Whether vgpud runs, which keeps the shares of GPUs here or should: 1 or 0. Missing where no GPU has slices that it would keep.")
	waitingJobs = own(gauge, "jobs_waiting", "Jobs that found no room on this node and wait for it in the queue.")
	records     = own(gauge, "records_waiting", "Usage records that have not reached the accounting database.")
	recordsAge  = own(gauge, "records_waiting_age_seconds", "Time since the end of the run that the oldest waiting usage record is of; 0: none waits.")
	refusals    = own(counter, "placement_refusals_total", "How often a job got no slice here, since boot, by why.", "reason")
	prologs     = own(prometheus.UntypedValue, "prolog_seconds", "How long prologs took that placed or refused a job, since boot.")
)

// collector says the figures of one moment.
type collector struct {
	node    metrics.Node
	options options
}

// Describe says nothing: which series there are is up to the node.
func (c collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(to chan<- prometheus.Metric) {
	say := func(f family, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
	}
	say(buildInfo, 1, c.node.Version)
	for name, readable := range c.node.Sources {
		say(source, truth(readable), name)
	}
	if c.node.VgpudRuns != nil {
		say(vgpudUp, truth(*c.node.VgpudRuns))
	}
	for _, g := range c.node.GPUs {
		c.gpu(say, g)
	}
	for _, s := range newest(c.node.Slices) {
		c.slice(say, s)
	}
	if c.node.Sources["waiting"] {
		say(waitingJobs, float64(c.node.Waiting))
	}
	if c.node.Sources["records"] {
		say(records, float64(c.node.Records.Waiting))
		say(recordsAge, c.node.Records.OldestSeconds)
	}
	if !c.node.Sources["counts"] {
		return
	}
	for reason, n := range c.node.Refusals {
		say(refusals, float64(n), reason)
	}
	buckets := make(map[float64]uint64)
	for _, b := range c.node.Prologs.Buckets {
		buckets[b.Seconds] = b.Count
	}
	to <- prometheus.MustNewConstHistogram(prologs.desc, c.node.Prologs.Count, c.node.Prologs.Seconds, buckets)
}

// sayer puts out one series.
type sayer func(f family, value float64, labels ...string)

func (c collector) gpu(say sayer, g metrics.GPU) {
	labels := []string{string(g.UUID), index(g.GPU)}
	say(gpuInfo, 1, append(slices.Clone(labels), g.Type, g.State)...)
	say(gpuMemory, bytesOf(g.MemMiB), labels...)
	if !c.node.Sources["state"] {
		return
	}
	say(gpuGranted, float64(g.GrantedBytes), labels...)
	say(gpuShare, g.GrantedRatio, labels...)
	say(gpuSlices, float64(g.Slices), labels...)
	say(gpuMaxSlices, float64(g.MaxSlices), labels...)
	if g.Unmetered != nil {
		say(gpuUnmetered, float64(g.Unmetered.Bytes), labels...)
		say(gpuUnmeteredBy, float64(g.Unmetered.Processes), labels...)
	}
}

func (c collector) slice(say sayer, s metrics.Slice) {
	if !c.node.Users {
		s.User, s.Account = "", "" // Prometheus takes a label without a value for none
	}
	labels := []string{job(s.Job), s.User, s.Account, string(s.GPU.UUID), index(s.GPU)}
	say(sliceInfo, 1, append(slices.Clone(labels), s.Policy, s.Priority, s.Isolation)...)
	say(sliceLimit, float64(s.LimitBytes), labels...)
	say(sliceShare, s.ShareRatio, labels...)
	if s.DriverBytes != nil {
		say(sliceDriver, float64(*s.DriverBytes), labels...)
	}
	if s.Use != nil {
		say(sliceUsed, float64(s.Use.UsedBytes), labels...)
		say(slicePeak, float64(s.Use.PeakBytes), labels...)
		say(sliceRefused, float64(s.Use.Refusals), labels...)
	}
	if s.Counted != nil {
		say(sliceSeconds, s.Counted.GPUSeconds, labels...)
		say(sliceUnknown, s.Counted.UnknownSeconds, labels...)
		say(sliceFreezes, float64(s.Counted.Freezes), labels...)
		say(sliceFrozen, truth(s.Counted.IsFrozen), labels...)
	}
	if c.options.steps {
		for _, step := range s.Steps {
			labels := append(slices.Clone(labels), step.Name)
			say(stepUsed, float64(step.Use.UsedBytes), labels...)
			say(stepPeak, float64(step.Use.PeakBytes), labels...)
			say(stepRefused, float64(step.Use.Refusals), labels...)
		}
	}
	if c.options.compat.jobstats {
		c.jobstats(say, s)
	}
	if c.options.compat.computeCanada {
		c.computeCanada(say, s)
	}
}

// gather has the series of a node.
func gather(node metrics.Node, options options) ([]*dto.MetricFamily, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collector{node, options}); err != nil {
		return nil, err
	}
	return registry.Gather()
}

// newest has each job's slice of a GPU once: two series of the same labels are refused by who reads them.
func newest(all []metrics.Slice) []metrics.Slice {
	type name struct {
		job  uint32
		uuid device.UUID
	}
	last := make(map[name]metrics.Slice)
	for _, s := range all {
		last[name{s.Job, s.GPU.UUID}] = s
	}
	return slices.Collect(maps.Values(last))
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func bytesOf(mib int64) float64 { return float64(mib) * (1 << 20) }

func job(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

func index(g device.GPU) string { return strconv.Itoa(int(g.Index)) }
