// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

var le = binary.LittleEndian

// gpu is the one that is measured.
type gpu struct {
	nvml.Device
	uuid    string // what CUDA_VISIBLE_DEVICES takes, in whatever order CUDA counts
	minor   int    // of /dev/nvidiaN
	address string // on the PCI bus
}

func openGPU(nvmlIndex int) (*gpu, error) {
	device, ret := nvml.DeviceGetHandleByIndex(nvmlIndex)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("GPU of NVML index %d: %v", nvmlIndex, ret)
	}
	g := &gpu{Device: device}
	if g.uuid, ret = device.GetUUID(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("UUID of the GPU: %v", ret)
	}
	if g.minor, ret = device.GetMinorNumber(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("minor number of the GPU: %v", ret)
	}
	at, ret := device.GetPciInfo()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("PCI address of the GPU: %v", ret)
	}
	g.address = fmt.Sprintf("%x:%x:%x.0", at.Domain, at.Bus, at.Device)
	return g, nil
}

// visible is the environment in which a program has this GPU alone.
func (g *gpu) visible() string { return "CUDA_VISIBLE_DEVICES=" + g.uuid }

// usedMiB is of the GPU's memory, whoever has it.
func (g *gpu) usedMiB() uint64 {
	memory, _ := g.GetMemoryInfo()
	return memory.Used >> 20
}

// sample is where NVML's counters of use stand (GPM, from Hopper on); nil: there are none.
func (g *gpu) sample() nvml.GpmSample {
	sample, ret := nvml.GpmSampleAlloc()
	if ret != nvml.SUCCESS || g.GpmSampleGet(sample) != nvml.SUCCESS {
		return nil
	}
	return sample
}

// engine gives for how many percent of the time between two samples the graphics engine was active; -1: not known.
func engine(first, last nvml.GpmSample) float64 {
	if first == nil || last == nil {
		return -1
	}
	metrics := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: first, Sample2: last}
	metrics.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_GRAPHICS_UTIL)
	if ret := nvml.GpmMetricsGet(&metrics); ret != nvml.SUCCESS {
		return -1
	}
	return metrics.Metrics[0].Value
}
