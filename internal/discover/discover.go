// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package discover asks NVML for the GPUs of this node. It is the only package that starts NVML:
// everything that runs for a job reads the inventory file that is made from what it finds.
package discover

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
)

// ErrUnavailable is wrapped when NVML cannot be loaded or started: no driver, no GPU, or a library
// and a kernel module of different versions.
var ErrUnavailable = errors.New("NVML is not available")

// LostMIG is the reason recorded for a GPU in MIG mode: its memory belongs to its MIG slices.
const LostMIG = "MIG mode is on"

// defaultLibrary is found by the dynamic linker, as every NVML program finds it.
const defaultLibrary = "libnvidia-ml.so.1"

// needed are the functions without which there is no inventory, under the names that a library must
// have. A call of a missing one would end the process, so they are looked up before any call.
var needed = []string{"nvmlInit_v2", "nvmlShutdown", "nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion",
	"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
	"nvmlDeviceGetMinorNumber", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPciInfo_v3"}

// Library is NVML from the given library; "" means libnvidia-ml.so.1. The error wraps ErrUnavailable.
func Library(path string) (nvml.Interface, error) {
	if path == "" {
		path = defaultLibrary
	}
	probe := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := probe.Open(); err != nil {
		return nil, fmt.Errorf("load NVML: %w: %w", ErrUnavailable, err)
	}
	for _, symbol := range needed {
		if err := probe.Lookup(symbol); err != nil {
			return nil, fmt.Errorf("load NVML: %w: %s has no function %s", ErrUnavailable, path, symbol)
		}
	}
	// The probe stays open: closing it would only make NVML load again.
	return nvml.New(nvml.WithLibraryPath(path)), nil
}

// Inventory starts NVML, lists the GPUs and stops NVML again. A GPU that answers wrongly is in the
// inventory with the reason in Lost; the others are usable. The error wraps ErrUnavailable if no
// list could be had at all.
func Inventory(lib nvml.Interface) (device.Inventory, error) {
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return device.Inventory{}, fmt.Errorf("start NVML: %w: %w", ErrUnavailable, asError(ret))
	}
	defer lib.Shutdown() // nothing can be done about its failure: the list is complete by then

	boot, err := inventory.BootID()
	if err != nil {
		return device.Inventory{}, err
	}
	inv := device.Inventory{Version: inventory.Version, BootID: boot, GPUs: []device.GPU{}}
	driver, ret := lib.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return device.Inventory{}, fmt.Errorf("ask NVML for the driver version: %w: %w", ErrUnavailable, asError(ret))
	}
	inv.DriverVersion = driver
	// A driver without CUDA says NOT_FOUND here; such a node still has an inventory.
	if version, ret := lib.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		inv.CUDAVersion = version
	}
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return device.Inventory{}, fmt.Errorf("ask NVML for the number of GPUs: %w: %w", ErrUnavailable, asError(ret))
	}
	seen := make(map[device.UUID]bool)
	for index := range count {
		gpu := one(lib, index)
		if seen[gpu.UUID] { // a driver that repeats itself must not make one GPU count twice
			gpu.Lost = fmt.Sprintf("NVML names it %s, as another GPU of this node", gpu.UUID)
			gpu.UUID = unnamed(index)
		}
		seen[gpu.UUID] = true
		inv.GPUs = append(inv.GPUs, gpu)
	}
	return inv, nil
}

// one describes the GPU at an NVML index. The first call that fails gives the reason in Lost; what
// else can be learnt is still recorded.
func one(lib nvml.Interface, index int) device.GPU {
	gpu := device.GPU{UUID: unnamed(index), Index: device.NVMLIndex(index), Minor: -1}
	lose := func(what string, ret nvml.Return) {
		if gpu.Lost == "" {
			gpu.Lost = what + ": " + asError(ret).Error()
		}
	}
	handle, ret := lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		lose("handle", ret)
		return gpu
	}
	if uuid, ret := handle.GetUUID(); ret != nvml.SUCCESS || uuid == "" {
		lose("UUID", ret)
	} else {
		gpu.UUID = device.UUID(uuid)
	}
	if minor, ret := handle.GetMinorNumber(); ret != nvml.SUCCESS {
		lose("minor number", ret)
	} else {
		gpu.Minor = device.Minor(minor)
	}
	if name, ret := handle.GetName(); ret != nvml.SUCCESS {
		lose("name", ret)
	} else {
		gpu.Name, gpu.Type = name, TypeOf(name)
	}
	if pci, ret := handle.GetPciInfo(); ret != nvml.SUCCESS {
		lose("PCI bus id", ret)
	} else {
		gpu.PCIBusID = busID(pci)
	}
	if memory, ret := handle.GetMemoryInfo(); ret != nvml.SUCCESS {
		lose("memory", ret)
	} else {
		gpu.MemMiB = int64(memory.Total >> 20)
		if gpu.MemMiB == 0 && gpu.Lost == "" {
			gpu.Lost = "it has no memory of its own"
		}
	}
	// GPUs without MIG say NOT_SUPPORTED, old libraries have no such function at all.
	if lib.Extensions().LookupSymbol("nvmlDeviceGetMigMode") == nil {
		if current, _, ret := handle.GetMigMode(); ret == nvml.SUCCESS && current == nvml.DEVICE_MIG_ENABLE && gpu.Lost == "" {
			gpu.Lost = LostMIG
		}
	}
	if why := recovery(lib, handle); why != "" && gpu.Lost == "" {
		gpu.Lost = why
	}
	return gpu
}

// recovery is the driver's word that a GPU takes no new work before something is done to it, as after an uncorrectable error of its memory (nvml.h,
// NVML_FI_DEV_GET_GPU_RECOVERY_ACTION). Drivers that do not know the field say nothing.
func recovery(lib nvml.Interface, handle nvml.Device) string {
	if lib.Extensions().LookupSymbol("nvmlDeviceGetFieldValues") != nil {
		return ""
	}
	asked := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := handle.GetFieldValues(asked); ret != nvml.SUCCESS || asked[0].NvmlReturn != uint32(nvml.SUCCESS) {
		return ""
	}
	switch action := nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(asked[0].Value[:])); action { //nolint:exhaustive // others are named by number
	case nvml.GPU_RECOVERY_ACTION_NONE:
		return ""
	case nvml.GPU_RECOVERY_ACTION_GPU_RESET:
		return "after an error the driver wants a reset of the GPU (nvidia-smi -r)"
	case nvml.GPU_RECOVERY_ACTION_NODE_REBOOT, nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT:
		return "after an error the driver wants a reboot of the node"
	case nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:
		return "after an error the driver wants no new work on the GPU, then a reset (nvidia-smi -r)"
	default:
		return fmt.Sprintf("after an error the driver wants recovery action %d (nvidia-smi -q)", action)
	}
}

// unnamed is the identity of a GPU that has fallen off the bus and cannot say its UUID.
func unnamed(index int) device.UUID { return device.UUID(fmt.Sprintf("unknown-%d", index)) }

// busID reads NVML's C string.
func busID(pci nvml.PciInfo) string {
	text := make([]byte, 0, len(pci.BusId))
	for _, c := range pci.BusId {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return string(text)
}

// asError gives NVML's words, with the usual cause where they are too terse to act upon.
func asError(ret nvml.Return) error {
	switch ret { //nolint:exhaustive // NVML has words for the others
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return errors.New("the NVIDIA kernel module is not loaded")
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return errors.New("driver and library have different versions (was the driver updated without a reboot?)")
	case nvml.ERROR_GPU_IS_LOST:
		return errors.New("the GPU has fallen off the bus or is otherwise inaccessible")
	}
	if text := nvml.ErrorString(ret); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("NVML return code %d", int(ret))
}
