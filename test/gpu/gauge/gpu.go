// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package gauge

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// GPU is the one that is measured.
type GPU struct {
	nvml.Device
	UUID    string // what CUDA_VISIBLE_DEVICES takes, in whatever order CUDA counts
	Minor   int    // of /dev/nvidiaN
	Address string // on the PCI bus
	library nvml.Interface
}

// OpenGPU finds a GPU by its number in an NVML library that was initialised.
func OpenGPU(library nvml.Interface, nvmlIndex int) (*GPU, error) {
	device, ret := library.DeviceGetHandleByIndex(nvmlIndex)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("GPU of NVML index %d: %v", nvmlIndex, ret)
	}
	g := &GPU{Device: device, library: library}
	if g.UUID, ret = device.GetUUID(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("UUID of the GPU: %v", ret)
	}
	if g.Minor, ret = device.GetMinorNumber(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("minor number of the GPU: %v", ret)
	}
	at, ret := device.GetPciInfo()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("PCI address of the GPU: %v", ret)
	}
	g.Address = fmt.Sprintf("%x:%x:%x.0", at.Domain, at.Bus, at.Device)
	return g, nil
}

// Visible is the environment in which a program has this GPU alone.
func (g *GPU) Visible() string { return "CUDA_VISIBLE_DEVICES=" + g.UUID }

// UsedMiB is of the GPU's memory, whoever has it.
func (g *GPU) UsedMiB() uint64 {
	memory, _ := g.GetMemoryInfo()
	return memory.Used >> 20
}

// Sample is where NVML's counters of use stand (GPM, from Hopper on); nil: there are none.
func (g *GPU) Sample() nvml.GpmSample {
	sample, ret := g.library.GpmSampleAlloc()
	if ret != nvml.SUCCESS || g.GpmSampleGet(sample) != nvml.SUCCESS {
		return nil
	}
	return sample
}

// Engine gives for how many percent of the time between two samples the graphics engine was active; -1: not known.
func (g *GPU) Engine(first, last nvml.GpmSample) float64 {
	if first == nil || last == nil {
		return -1
	}
	metrics := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: first, Sample2: last}
	metrics.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_GRAPHICS_UTIL)
	if ret := g.library.GpmMetricsGet(&metrics); ret != nvml.SUCCESS {
		return -1
	}
	return metrics.Metrics[0].Value
}

// Xids are the faults of GPUs in the kernel's log.
func Xids() int {
	text, _ := exec.Command("dmesg").Output()
	return strings.Count(string(text), "Xid")
}
