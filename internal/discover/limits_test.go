// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// limiting is a driver that says this to whoever sets or asks for a limit; an older one has no such function.
func limiting(ret nvml.Return, older bool) Session {
	gpu := &mock.Device{
		SetMemoryLimits_v1Func: func(string, uint64, uint64) nvml.Return { return ret },
		GetMemoryLimits_v1Func: func(string) (nvml.MemoryLimits_v1, nvml.Return) {
			return nvml.MemoryLimits_v1{HardLimit: 7, CurrentUsed: 3}, ret
		},
	}
	return Session{&mock.Interface{
		DeviceGetHandleByUUIDFunc: func(string) (nvml.Device, nvml.Return) { return gpu, nvml.SUCCESS },
		ExtensionsFunc: func() nvml.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(string) error {
				if older {
					return errors.New("no such symbol")
				}
				return nil
			}}
		},
		ErrorStringFunc: func(nvml.Return) string { return "no" },
	}}
}

func TestLimits(t *testing.T) {
	s := limiting(nvml.SUCCESS, false)
	if now, err := s.Limit("GPU-a", "/x"); err != nil || now != (Limit{HardBytes: 7, UsedBytes: 3}) || s.SetLimit("GPU-a", "/x", 7) != nil {
		t.Errorf("%+v, %v", now, err)
	}
	if now, err := limiting(nvml.ERROR_NOT_FOUND, false).Limit("GPU-a", "/x"); err != nil || now != (Limit{HardBytes: Unlimited}) {
		t.Errorf("where none is set: %+v, %v", now, err)
	}
	for name, s := range map[string]Session{"an older driver": limiting(nvml.SUCCESS, true), "a GPU without": limiting(nvml.ERROR_NOT_SUPPORTED, false)} {
		if _, err := s.Limit("GPU-a", "/x"); !errors.Is(err, ErrNoLimits) || !errors.Is(s.SetLimit("GPU-a", "/x", 7), ErrNoLimits) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := limiting(nvml.ERROR_NO_PERMISSION, false).SetLimit("GPU-a", "/x", 7); err == nil || errors.Is(err, ErrNoLimits) {
		t.Errorf("without rights: %v", err)
	}
}
