// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"errors"
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// ErrNoLimits is wrapped when the driver keeps no limits of memory by cgroup: it is older than R615, or a GPU has none.
var ErrNoLimits = errors.New("the driver keeps no limits of memory by cgroup (R615 and later do)")

// Unlimited is the hard limit of a cgroup that has none.
const Unlimited = math.MaxUint64

// Limit is what the driver gives a cgroup of a GPU's memory at most, and what it says that the cgroup has.
type Limit struct{ HardBytes, UsedBytes uint64 }

// SetLimit sets the hard limit of a cgroup, by its folder in the file system; Unlimited takes it away. The soft limit
// is always 0: it would be a reservation, which the driver adds to every folder above and leaves there when
// this one is removed (NVIDIA, MPS v3 Memory Partitioning, "Ancestor reservation propagation").
func (s Session) SetLimit(uuid device.UUID, folder string, hardBytes uint64) error {
	gpu, err := s.limited(uuid, "nvmlDeviceSetMemoryLimits_v1")
	if err != nil {
		return err
	}
	return said("limit the memory of "+folder, uuid, gpu.SetMemoryLimits_v1(folder, 0, hardBytes))
}

// Limit asks for both.
func (s Session) Limit(uuid device.UUID, folder string) (Limit, error) {
	gpu, err := s.limited(uuid, "nvmlDeviceGetMemoryLimits_v1")
	if err != nil {
		return Limit{}, err
	}
	limits, ret := gpu.GetMemoryLimits_v1(folder)
	if ret == nvml.ERROR_NOT_FOUND { // none is set
		return Limit{HardBytes: Unlimited}, nil
	}
	return Limit{limits.HardLimit, limits.CurrentUsed}, said("ask for the limit of "+folder, uuid, ret)
}

// limited is the GPU, if the library has the function: calling a missing one would end the process.
func (s Session) limited(uuid device.UUID, symbol string) (nvml.Device, error) {
	if err := s.lib.Extensions().LookupSymbol(symbol); err != nil {
		return nil, fmt.Errorf("%w: there is no %s", ErrNoLimits, symbol)
	}
	gpu, ret := s.lib.DeviceGetHandleByUUID(string(uuid))
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("ask NVML for %s: %w", uuid, asError(ret))
	}
	return gpu, nil
}

func said(doing string, uuid device.UUID, ret nvml.Return) error {
	switch ret { //nolint:exhaustive // the others have nothing to do with limits
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
		return fmt.Errorf("%s on %s: %w", doing, uuid, ErrNoLimits)
	}
	return fmt.Errorf("%s on %s: %w", doing, uuid, asError(ret))
}
