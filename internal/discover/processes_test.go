// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// A process is in several of the driver's lists, and a driver may lack some of them.
func TestProcesses(t *testing.T) {
	node := twoH200()
	missing := "nvmlDeviceGetMPSComputeRunningProcesses"
	node.ExtensionsFunc = func() nvml.ExtendedInterface {
		return &mock.ExtendedInterface{LookupSymbolFunc: func(symbol string) error {
			if symbol == missing {
				return errors.New("there is none")
			}
			return nil
		}}
	}
	says := func(ret nvml.Return, processes ...nvml.ProcessInfo) func() ([]nvml.ProcessInfo, nvml.Return) {
		return func() ([]nvml.ProcessInfo, nvml.Return) { return processes, ret }
	}
	first, second := at(node, 0), at(node, 1)
	first.GetComputeRunningProcessesFunc = says(nvml.SUCCESS, nvml.ProcessInfo{Pid: 1, UsedGpuMemory: 10}, nvml.ProcessInfo{Pid: 2, UsedGpuMemory: math.MaxUint64})
	first.GetGraphicsRunningProcessesFunc = says(nvml.SUCCESS, nvml.ProcessInfo{Pid: 1, UsedGpuMemory: 30}, nvml.ProcessInfo{Pid: 3, UsedGpuMemory: 5},
		nvml.ProcessInfo{Pid: 2, UsedGpuMemory: 7})
	second.GetComputeRunningProcessesFunc = says(nvml.ERROR_NOT_SUPPORTED)
	second.GetGraphicsRunningProcessesFunc = says(nvml.SUCCESS, nvml.ProcessInfo{Pid: 4, UsedGpuMemory: 7})
	session, err := Open(node)
	if err != nil {
		t.Fatal(err)
	}
	got := session.Holders([]device.UUID{"GPU-aaaa", "GPU-bbbb", "GPU-cccc"})
	for uuid, want := range map[device.UUID][]Held{"GPU-aaaa": {{1, 30, true}, {2, 7, false}, {3, 5, true}}, "GPU-bbbb": {{4, 7, true}}, "GPU-cccc": nil} {
		if diff := cmp.Diff(want, got[uuid].Processes); diff != "" || (got[uuid].Err != nil) != (uuid != "GPU-aaaa") {
			t.Errorf("%s: %v, %s", uuid, got[uuid].Err, diff)
		}
	}
	if err := got["GPU-bbbb"].Err; err == nil || !strings.Contains(err.Error(), "NOT_SUPPORTED") {
		t.Errorf("it is not said why: %v", err)
	}
	session.Close()
	if stopped := len(node.ShutdownCalls()); stopped != 1 {
		t.Errorf("NVML was stopped %d times", stopped)
	}
	second.GetComputeRunningProcessesFunc, missing = says(nvml.SUCCESS), "nvmlDeviceGetGraphicsRunningProcesses"
	second.GetMPSComputeRunningProcessesFunc = says(nvml.ERROR_NOT_SUPPORTED)
	if got = session.Holders([]device.UUID{"GPU-bbbb"}); got["GPU-bbbb"].Err != nil || len(got["GPU-bbbb"].Processes) != 0 {
		t.Errorf("nobody holds it: %+v", got)
	}
	node.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	if _, err := Open(node); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without NVML: %v", err)
	}
}

func TestWhatNVMLSaysIsUnderstood(t *testing.T) {
	for ret, want := range map[nvml.Return]string{nvml.ERROR_DRIVER_NOT_LOADED: "kernel module is not loaded", nvml.ERROR_GPU_IS_LOST: "fallen off the bus",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "different versions", nvml.ERROR_NO_PERMISSION: "PERMISSION"} {
		if err := asError(ret); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q in it", ret, err, want)
		}
	}
}
