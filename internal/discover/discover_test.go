// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
)

// twoH200 is a node of two H200s with names that do not change from run to run.
func twoH200() *server.Server {
	node := dgxh200.NewWithGPUs(gpus.Multiple(2, gpus.H200_SXM5_141GB)...)
	for i, uuid := range []string{"GPU-aaaa", "GPU-bbbb"} {
		gpu := at(node, i)
		gpu.UUID = uuid
		gpu.GetFieldValuesFunc = wants(nvml.SUCCESS, nvml.GPU_RECOVERY_ACTION_NONE)
		gpu.Minor = 1 - i // a minor number need not equal the NVML index
		gpu.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
			var pci nvml.PciInfo
			for j, c := range []byte("00000000:0" + string(rune('1'+i)) + ":00.0") {
				pci.BusId[j] = int8(c)
			}
			return pci, nvml.SUCCESS
		}
	}
	return node
}

// wants is a driver's answer to what is to be done with a GPU.
func wants(ret nvml.Return, action nvml.DeviceGpuRecoveryAction) func([]nvml.FieldValue) nvml.Return {
	return func(asked []nvml.FieldValue) nvml.Return {
		if len(asked) != 1 || asked[0].FieldId != nvml.FI_DEV_GET_GPU_RECOVERY_ACTION {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		asked[0].NvmlReturn = uint32(ret)
		binary.NativeEndian.PutUint32(asked[0].Value[:], uint32(action))
		return nvml.SUCCESS
	}
}

func at(node *server.Server, index int) *server.Device { return node.Devices[index].(*server.Device) }

func wantTwoH200(t *testing.T) device.Inventory {
	t.Helper()
	boot, err := inventory.BootID()
	if err != nil {
		t.Fatal(err)
	}
	return device.Inventory{
		Version: 1, BootID: boot, DriverVersion: "550.54.15", CUDAVersion: 12040,
		GPUs: []device.GPU{
			{UUID: "GPU-aaaa", Index: 0, Minor: 1, PCIBusID: "00000000:01:00.0", Name: "NVIDIA H200 141GB HBM3e", Type: "h200", MemMiB: 144384},
			{UUID: "GPU-bbbb", Index: 1, Minor: 0, PCIBusID: "00000000:02:00.0", Name: "NVIDIA H200 141GB HBM3e", Type: "h200", MemMiB: 144384},
		},
	}
}

var inventories = map[string]struct {
	change func(*server.Server)
	want   func(*device.Inventory)
}{
	"two GPUs": {func(*server.Server) {}, func(*device.Inventory) {}},
	"no CUDA": {
		func(n *server.Server) {
			n.SystemGetCudaDriverVersionFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_NOT_FOUND }
		},
		func(inv *device.Inventory) { inv.CUDAVersion = 0 },
	},
	"MIG": {
		func(n *server.Server) { at(n, 1).MigMode = nvml.DEVICE_MIG_ENABLE },
		func(inv *device.Inventory) { inv.GPUs[1].Lost = LostMIG },
	},
	"MIG not supported": {
		func(n *server.Server) {
			at(n, 1).GetMigModeFunc = func() (int, int, nvml.Return) { return 1, 1, nvml.ERROR_NOT_SUPPORTED }
		},
		func(*device.Inventory) {},
	},
	"off the bus": {
		func(n *server.Server) {
			handle := n.DeviceGetHandleByIndexFunc
			n.DeviceGetHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
				if index == 0 {
					return nil, nvml.ERROR_GPU_IS_LOST
				}
				return handle(index)
			}
		},
		func(inv *device.Inventory) {
			inv.GPUs[0] = device.GPU{UUID: "unknown-0", Minor: -1,
				Lost: "handle: the GPU has fallen off the bus or is otherwise inaccessible"}
		},
	},
	"an uncorrectable error": {
		func(n *server.Server) {
			at(n, 1).GetFieldValuesFunc = wants(nvml.SUCCESS, nvml.GPU_RECOVERY_ACTION_GPU_RESET)
		},
		func(inv *device.Inventory) {
			inv.GPUs[1].Lost = "after an error the driver wants a reset of the GPU (nvidia-smi -r)"
		},
	},
	"an error of a later driver": {
		func(n *server.Server) { at(n, 1).GetFieldValuesFunc = wants(nvml.SUCCESS, 99) },
		func(inv *device.Inventory) {
			inv.GPUs[1].Lost = "after an error the driver wants recovery action 99 (nvidia-smi -q)"
		},
	},
	"a driver that knows no recovery": {
		func(n *server.Server) {
			at(n, 1).GetFieldValuesFunc = wants(nvml.ERROR_NOT_SUPPORTED, nvml.GPU_RECOVERY_ACTION_GPU_RESET)
		},
		func(*device.Inventory) {},
	},
	"memory unreadable": {
		func(n *server.Server) {
			at(n, 0).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
				return nvml.Memory{Total: 5 << 30}, nvml.ERROR_GPU_IS_LOST
			}
		},
		func(inv *device.Inventory) {
			inv.GPUs[0].MemMiB = 0
			inv.GPUs[0].Lost = "memory: the GPU has fallen off the bus or is otherwise inaccessible"
		},
	},
	"no memory": {
		func(n *server.Server) { at(n, 0).MemoryInfo = nvml.Memory{} },
		func(inv *device.Inventory) {
			inv.GPUs[0].MemMiB = 0
			inv.GPUs[0].Lost = "it has no memory of its own"
		},
	},
	"one UUID twice": {
		func(n *server.Server) { at(n, 1).UUID = "GPU-aaaa" },
		func(inv *device.Inventory) {
			inv.GPUs[1].UUID = "unknown-1"
			inv.GPUs[1].Lost = "NVML names it GPU-aaaa, as another GPU of this node"
		},
	},
	"no GPU": {
		func(n *server.Server) { n.Devices = nil },
		func(inv *device.Inventory) { inv.GPUs = []device.GPU{} },
	},
}

func TestInventory(t *testing.T) {
	for name, tc := range inventories {
		t.Run(name, func(t *testing.T) {
			node := twoH200()
			tc.change(node)
			got, err := Inventory(node)
			if err != nil {
				t.Fatal(err)
			}
			want := wantTwoH200(t)
			tc.want(&want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if stopped := len(node.ShutdownCalls()); stopped != 1 {
				t.Errorf("NVML was stopped %d times", stopped)
			}
		})
	}
}

func TestInventoryOfADGX(t *testing.T) {
	node := dgxa100.New()
	for i := range node.Devices {
		at(node, i).GetFieldValuesFunc = wants(nvml.ERROR_NOT_SUPPORTED, nvml.GPU_RECOVERY_ACTION_NONE)
	}
	inv, err := Inventory(node)
	if err != nil {
		t.Fatal(err)
	}
	if len(inv.GPUs) != 8 {
		t.Errorf("%d GPUs, want 8", len(inv.GPUs))
	}
	for _, gpu := range inv.GPUs {
		if gpu.Type != "a100" || gpu.Lost != "" || gpu.MemMiB == 0 {
			t.Errorf("unexpected %+v", gpu)
		}
	}
}

func TestNVMLUnavailable(t *testing.T) {
	for name, change := range map[string]func(*server.Server){
		"init": func(n *server.Server) { n.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED } },
		"driver": func(n *server.Server) {
			n.SystemGetDriverVersionFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
		},
		"count": func(n *server.Server) {
			n.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := twoH200()
			change(node)
			if inv, err := Inventory(node); !errors.Is(err, ErrUnavailable) {
				t.Errorf("got %+v, %v", inv, err)
			}
		})
	}
}

func TestLibraryThatIsNone(t *testing.T) {
	for name, path := range map[string]string{
		"missing":     filepath.Join(t.TempDir(), "libnvidia-ml.so.1"),
		"not NVML":    "libm.so.6",
		"not a file":  t.TempDir(),
		"not an ELF ": "/etc/passwd",
	} {
		t.Run(name, func(t *testing.T) {
			if lib, err := Library(path); !errors.Is(err, ErrUnavailable) {
				t.Errorf("got %v, %v", lib, err)
			}
		})
	}
}

// The real calls into a library, with the simulated one: what the mock cannot show.
func TestSimulatedLibrary(t *testing.T) {
	path, err := filepath.Abs("../../build/sim/libnvidia-ml.so.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the simulated library is not built: %v", err)
	}
	lib, err := Library(path)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := Inventory(lib)
	if err != nil {
		t.Fatal(err)
	}
	if len(inv.GPUs) == 0 || inv.DriverVersion == "" || inv.CUDAVersion < 11000 {
		t.Errorf("unexpected inventory %+v", inv)
	}
	for _, gpu := range inv.GPUs {
		if gpu.Lost != "" || !strings.HasPrefix(string(gpu.UUID), "GPU-") || gpu.MemMiB == 0 || gpu.PCIBusID == "" || gpu.Type == "" || gpu.Minor < 0 {
			t.Errorf("unexpected %+v", gpu)
		}
	}
}
