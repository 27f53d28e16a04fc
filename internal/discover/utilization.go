// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Used is what the driver says of a process. Some drivers tell each sample, all of which is booked on one process, and some only the
// mean of a process's samples since the time that is asked for, as NVML's reference has it.
type Used struct {
	PID       int
	AtUnixUs  uint64 // when the sample ends, or the last one of the mean, by this node's clock
	SMPercent int    // a rest is left out
}

// soon is by when there is a sample of whoever is at work.
const soon = 2 * time.Second

// ErrNotByProcess is wrapped when a driver gives no GPU time by process, or none while the GPU is busy: the busy process may have ended.
var ErrNotByProcess = errors.New("the driver does not tell whose work keeps the GPU busy")

// Utilization asks for the samples of a GPU since a time, in microseconds since 1970. Processes that have ended are in none.
func (s Session) Utilization(uuid device.UUID, since uint64) ([]Used, error) {
	handle, ret := s.lib.DeviceGetHandleByUUID(string(uuid))
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("ask NVML for %s: %w", uuid, asError(ret))
	}
	if s.lib.Extensions().LookupSymbol("nvmlDeviceGetProcessUtilization") != nil { // calling a missing function would end the process
		return nil, fmt.Errorf("ask NVML for %s: %w", uuid, ErrNotByProcess)
	}
	samples, ret := handle.GetProcessUtilization(since)
	switch {
	case ret == nvml.ERROR_NOT_FOUND: // nobody was at work
		samples = nil
	case ret == nvml.ERROR_NOT_SUPPORTED:
		return nil, fmt.Errorf("ask NVML for %s: %w", uuid, ErrNotByProcess)
	case ret != nvml.SUCCESS:
		return nil, fmt.Errorf("ask NVML who kept %s busy: %w", uuid, asError(ret))
	}
	used := make([]Used, 0, len(samples))
	any := false
	for _, sample := range samples {
		if sample.SmUtil > 100 || sample.TimeStamp <= since { // drivers have been seen to answer with numbers that are no percentages
			continue
		}
		any = any || sample.SmUtil > 0
		used = append(used, Used{PID: int(sample.Pid), AtUnixUs: sample.TimeStamp, SMPercent: int(sample.SmUtil)})
	}
	// A driver that has nothing to say of who is at work has not seen an idle GPU. For a short while there may be no sample yet.
	if !any && uint64(time.Now().Add(-soon).UnixMicro()) > since {
		if rates, ret := handle.GetUtilizationRates(); ret == nvml.SUCCESS && rates.Gpu > 0 {
			return nil, fmt.Errorf("ask NVML for %s: %w", uuid, ErrNotByProcess)
		}
	}
	return used, nil
}

// Busy is the part of the time since one in microseconds since 1970 in which a GPU was at work, for any process; false: the driver does
// not say.
func (s Session) Busy(uuid device.UUID, since uint64) (part float64, told bool) {
	handle, ret := s.lib.DeviceGetHandleByUUID(string(uuid))
	if ret != nvml.SUCCESS || s.lib.Extensions().LookupSymbol("nvmlDeviceGetSamples") != nil {
		return 0, false
	}
	kind, samples, ret := handle.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, since)
	if ret != nvml.SUCCESS || kind != nvml.VALUE_TYPE_UNSIGNED_INT {
		return 0, false
	}
	slices.SortFunc(samples, func(a, b nvml.Sample) int { return cmp.Compare(a.TimeStamp, b.TimeStamp) })
	busyUs, before := 0.0, since
	for _, sample := range samples {
		percent := float64(binary.NativeEndian.Uint32(sample.SampleValue[:4]))
		if percent > 100 || sample.TimeStamp <= before {
			continue
		}
		if percent > 0 { // a rest is left out, half a percent in the mean
			busyUs += min(percent+0.5, 100) / 100 * float64(sample.TimeStamp-before)
		}
		before = sample.TimeStamp
	}
	if before == since {
		return 0, false
	}
	return busyUs / float64(before-since), true
}
