// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"
)

// lookedUp is a session with a driver that has all functions, or none where *lacks says why.
func lookedUp(t *testing.T, lacks *error) (*server.Server, Session) {
	t.Helper()
	node := twoH200()
	node.ExtensionsFunc = func() nvml.ExtendedInterface {
		return &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return *lacks }}
	}
	session, err := Open(node)
	if err != nil {
		t.Fatal(err)
	}
	return node, session
}

func TestUtilizationByProcess(t *testing.T) {
	var has error
	node, session := lookedUp(t, &has)
	gpu := at(node, 0)
	ret, gpuPercent := nvml.SUCCESS, uint32(90)
	var samples []nvml.ProcessUtilizationSample
	gpu.GetProcessUtilizationFunc = func(since uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
		if since != 100 {
			t.Errorf("asked for what is since %d", since)
		}
		return samples, ret
	}
	gpu.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{Gpu: gpuPercent}, nvml.SUCCESS
	}
	sample := func(pid uint32, at uint64, percent uint32) nvml.ProcessUtilizationSample {
		return nvml.ProcessUtilizationSample{Pid: pid, TimeStamp: at, SmUtil: percent}
	}
	samples = []nvml.ProcessUtilizationSample{sample(1, 200, 50), sample(2, 300, 0), sample(1, 300, 4000000000), sample(2, 100, 70)}
	got, err := session.Utilization("GPU-aaaa", 100)
	if diff := cmp.Diff([]Used{{1, 200, 50}, {2, 300, 0}}, got); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	samples = samples[1:2]
	if got, err := session.Utilization("GPU-aaaa", 100); !errors.Is(err, ErrNotByProcess) {
		t.Errorf("a busy GPU, and processes that are not: %v, %v", got, err)
	}
	samples = nil
	if got, err := session.Utilization("GPU-aaaa", 100); !errors.Is(err, ErrNotByProcess) {
		t.Errorf("a busy GPU, and no processes: %v, %v", got, err)
	}
	samples = []nvml.ProcessUtilizationSample{sample(2, 300, 0)}
	gpuPercent = 0
	if got, err := session.Utilization("GPU-aaaa", 100); err != nil || len(got) != 1 {
		t.Errorf("an idle GPU: %v, %v", got, err)
	}
	ret = nvml.ERROR_NOT_FOUND
	if got, err := session.Utilization("GPU-aaaa", 100); err != nil || len(got) != 0 {
		t.Errorf("nobody was at work: %v, %v", got, err)
	}
	for _, ret = range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_GPU_IS_LOST} {
		if _, err := session.Utilization("GPU-aaaa", 100); err == nil || errors.Is(err, ErrNotByProcess) != (ret == nvml.ERROR_NOT_SUPPORTED) {
			t.Errorf("%d: %v", ret, err)
		}
	}
	if _, err := session.Utilization("GPU-none", 100); err == nil {
		t.Error("of a GPU that is not there")
	}
	has = errors.New("there is none")
	if _, err := session.Utilization("GPU-aaaa", 100); !errors.Is(err, ErrNotByProcess) {
		t.Errorf("without the function: %v", err)
	}
}

func TestBusyIsWhoeverWasAtWork(t *testing.T) {
	var has error
	node, session := lookedUp(t, &has)
	sample := func(at uint64, percent uint32) nvml.Sample {
		s := nvml.Sample{TimeStamp: at}
		binary.NativeEndian.PutUint32(s.SampleValue[:], percent)
		return s
	}
	var samples []nvml.Sample
	ret := nvml.SUCCESS
	at(node, 0).GetSamplesFunc = func(kind nvml.SamplingType, since uint64) (nvml.ValueType, []nvml.Sample, nvml.Return) {
		if kind != nvml.GPU_UTILIZATION_SAMPLES || since != 100 {
			t.Errorf("asked for %d since %d", kind, since)
		}
		return nvml.VALUE_TYPE_UNSIGNED_INT, samples, ret
	}
	for name, c := range map[string]struct {
		samples []nvml.Sample
		want    float64
		told    bool
	}{
		"nothing yet":       {nil, 0, false},
		"idle":              {[]nvml.Sample{sample(300, 0)}, 0, true},
		"full":              {[]nvml.Sample{sample(300, 100), sample(500, 100)}, 1, true},
		"in any order":      {[]nvml.Sample{sample(500, 0), sample(300, 49)}, 0.2475, true},
		"no percentages":    {[]nvml.Sample{sample(300, 99), sample(500, 4000000000)}, 0.995, true},
		"of before":         {[]nvml.Sample{sample(100, 99), sample(200, 0)}, 0, true},
		"of before alone":   {[]nvml.Sample{sample(100, 99)}, 0, false},
		"two of one moment": {[]nvml.Sample{sample(300, 100), sample(300, 100)}, 1, true},
	} {
		samples = c.samples
		if got, told := session.Busy("GPU-aaaa", 100); math.Abs(got-c.want) > 1e-9 || told != c.told {
			t.Errorf("%s: %v, %v, want %v, %v", name, got, told, c.want, c.told)
		}
	}
	samples, ret = []nvml.Sample{sample(300, 100)}, nvml.ERROR_NOT_SUPPORTED
	if _, told := session.Busy("GPU-aaaa", 100); told {
		t.Error("a driver that does not support it tells")
	}
	if _, told := session.Busy("GPU-none", 100); told {
		t.Error("a GPU that is not there tells")
	}
	has = errors.New("there is none")
	if _, told := session.Busy("GPU-aaaa", 100); told {
		t.Error("a driver without the function tells")
	}
}
