// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Held is what the driver says that one process holds of a GPU.
type Held struct {
	PID   int
	Bytes uint64
	Known bool // false: the driver lists the process and cannot say how much it holds
}

// Holders are the processes that the driver lists for one GPU. They may be incomplete when Err is set.
type Holders struct {
	Processes []Held
	Err       error
}

// Session is NVML, started.
type Session struct{ lib nvml.Interface }

// Open starts NVML. The error wraps ErrUnavailable.
func Open(lib nvml.Interface) (Session, error) {
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return Session{}, fmt.Errorf("start NVML: %w: %w", ErrUnavailable, asError(ret))
	}
	return Session{lib}, nil
}

// Close stops NVML. Nothing can be done about its failure: what was asked is known by then.
func (s Session) Close() { s.lib.Shutdown() }

// Holders asks who holds memory of each of these GPUs.
func (s Session) Holders(uuids []device.UUID) map[device.UUID]Holders {
	all := make(map[device.UUID]Holders, len(uuids))
	for _, uuid := range uuids {
		handle, ret := s.lib.DeviceGetHandleByUUID(string(uuid))
		if ret != nvml.SUCCESS {
			all[uuid] = Holders{Err: fmt.Errorf("ask NVML for %s: %w", uuid, asError(ret))}
			continue
		}
		all[uuid] = holders(s.lib, handle)
	}
	return all
}

// holders merges the driver's lists: a process that computes and draws is in two of them, with the
// same memory.
func holders(lib nvml.Interface, gpu nvml.Device) (found Holders) {
	at := make(map[uint32]int)
	for _, list := range []struct {
		symbol string
		must   bool
		ask    func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses", true, gpu.GetComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses", false, gpu.GetGraphicsRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", false, gpu.GetMPSComputeRunningProcesses},
	} {
		ret := nvml.ERROR_FUNCTION_NOT_FOUND
		var processes []nvml.ProcessInfo
		if lib.Extensions().LookupSymbol(list.symbol) == nil { // calling a missing function would end the process
			processes, ret = list.ask()
		}
		if ret != nvml.SUCCESS && list.must {
			found.Err = fmt.Errorf("ask NVML who uses the GPU: %w", asError(ret))
		}
		for _, p := range processes {
			held := Held{PID: int(p.Pid), Bytes: p.UsedGpuMemory, Known: p.UsedGpuMemory != math.MaxUint64}
			if !held.Known {
				held.Bytes = 0
			}
			if i, twice := at[p.Pid]; twice {
				found.Processes[i].Bytes = max(found.Processes[i].Bytes, held.Bytes)
				found.Processes[i].Known = found.Processes[i].Known && held.Known
				continue
			}
			at[p.Pid] = len(found.Processes)
			found.Processes = append(found.Processes, held)
		}
	}
	return found
}
