// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Activity measures which part of the time a GPU's engine is at work, by two of the GPU's own counters (GPM), or where it has none by NVML's
// samples of utilisation, which are whole percents.
type Activity struct {
	session       Session
	uuid          device.UUID
	handle        nvml.Device
	before, after nvml.GpmSample // nil: there is no GPM
	sinceUs       uint64
	begun         bool
}

// gpmFunctions are looked up before any call: that of a missing one would end the process.
var gpmFunctions = []string{"nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmQueryDeviceSupport"}

// Activity begins to measure.
func (s Session) Activity(uuid device.UUID) (*Activity, error) {
	handle, ret := s.lib.DeviceGetHandleByUUID(string(uuid))
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("ask NVML for %s: %w", uuid, asError(ret))
	}
	a := &Activity{session: s, uuid: uuid, handle: handle, sinceUs: uint64(time.Now().UnixMicro())}
	for _, name := range gpmFunctions {
		if s.lib.Extensions().LookupSymbol(name) != nil {
			return a, nil
		}
	}
	if support, ret := s.lib.GpmQueryDeviceSupport(handle); ret != nvml.SUCCESS || support.IsSupportedDevice == 0 {
		return a, nil
	}
	before, ret := s.lib.GpmSampleAlloc()
	if ret != nvml.SUCCESS {
		return a, nil
	}
	after, ret := s.lib.GpmSampleAlloc()
	if ret != nvml.SUCCESS {
		s.lib.GpmSampleFree(before)
		return a, nil
	}
	a.before, a.after = before, after
	return a, nil
}

// Close lets go of it.
func (a *Activity) Close() {
	if a.before != nil {
		a.session.lib.GpmSampleFree(a.before)
		a.session.lib.GpmSampleFree(a.after)
	}
}

// Since is that part since the last call, of 1; false: it is not known.
func (a *Activity) Since() (part float64, told bool) {
	if a.before == nil {
		now := uint64(time.Now().UnixMicro())
		if part, told = a.session.Busy(a.uuid, a.sinceUs); told {
			a.sinceUs = now
		}
		return part, told
	}
	if ret := a.session.lib.GpmSampleGet(a.handle, a.after); ret != nvml.SUCCESS {
		return 0, false
	}
	defer func() { a.before, a.after, a.begun = a.after, a.before, true }()
	if !a.begun {
		return 0, false
	}
	asked := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: a.before, Sample2: a.after}
	asked.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_GRAPHICS_UTIL)
	if ret := a.session.lib.GpmMetricsGet(&asked); ret != nvml.SUCCESS || asked.Metrics[0].NvmlReturn != uint32(nvml.SUCCESS) {
		return 0, false
	}
	part = asked.Metrics[0].Value / 100
	return part, part >= 0 && part <= 1
}
