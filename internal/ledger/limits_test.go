// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

func TestLimitsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), LimitsFile)
	want := Limits{Job: 12, Step: 0xfffffffb, UID: 1000, Flags: FailOpen, Generation: 1, JobStep: "12.batch", PagesDir: "/run/slurm-vgpu/pages/12",
		Devices: []LimitsDevice{
			{UUID: "GPU-a", StepMemBytes: 1 << 30, JobMemBytes: 3 << 30, DeviceMemBytes: 143771 << 20, SMPercent: 30, JobSMPercent: 40, Index: 1, Minor: 3},
			{UUID: "GPU-b", JobMemBytes: 3 << 30},
		}}
	if err := WriteLimits(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadLimits(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", st.Mode())
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, offset := range map[string]int{"magic": 0, "version": 8, "device count": 28} {
		other := slices.Clone(whole)
		other[offset] ^= 0x80
		if err := os.WriteFile(path, other, 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadLimits(path); !errors.Is(err, ErrLayout) {
			t.Errorf("another %s: %+v, %v", name, got, err)
		}
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLimits(path); !errors.Is(err, ErrLayout) {
		t.Errorf("cut page: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLimits(path); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("page that others may write: %v", err)
	}
}

// Tasks have the page mapped: one that became shorter would kill them with SIGBUS.
func TestANewLimitsPageLeavesTheMappedOneWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), LimitsFile)
	if err := WriteLimits(path, Limits{Job: 12, Devices: []LimitsDevice{{UUID: "GPU-a", StepMemBytes: 7}}}); err != nil {
		t.Fatal(err)
	}
	mapped, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Close()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteLimits(path, Limits{Job: 12}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	after := make([]byte, len(before))
	if _, err := mapped.ReadAt(after, 0); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the old page changed: %v", err)
	}
}

func TestLimitsThatDoNotFitAreErrors(t *testing.T) {
	for name, limits := range map[string]Limits{
		"devices": {Devices: make([]LimitsDevice, MaxDevices+1)},
		"uuid":    {Devices: []LimitsDevice{{UUID: "GPU-012345678901234567890123456789012345678901234567890123456789"}}}, // C relies on the NUL
		"pages":   {PagesDir: strings.Repeat("x", PagesDirBytes)},
		"minor":   {Devices: []LimitsDevice{{UUID: "GPU-a", Minor: -1}}},
	} {
		if err := WriteLimits(filepath.Join(t.TempDir(), LimitsFile), limits); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	data, err := encodeLimits(Limits{JobStep: strings.Repeat("9", 100)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeLimits(data); err != nil || len(got.JobStep) != len(limitsPage{}.JobStep)-1 {
		t.Errorf("long step name: %q, %v", got.JobStep, err)
	}
}

func TestAPageHasRoomForAllDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), LimitsFile)
	limits := Limits{Job: 12, PagesDir: strings.Repeat("x", PagesDirBytes-1)}
	for i := range MaxDevices {
		limits.Devices = append(limits.Devices, LimitsDevice{UUID: device.UUID(strings.Repeat("u", UUIDBytes-1)), StepMemBytes: uint64(i)})
	}
	if err := WriteLimits(path, limits); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadLimits(path); err != nil || !cmp.Equal(got, limits) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := Create(path+"ledger", 12, MaxDevices, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Error(err)
	}
	if err := Create(path+"ledger2", 12, MaxDevices+1, uint32(os.Getuid()), uint32(os.Getgid())); err == nil {
		t.Error("a ledger of more devices")
	}
}

func TestLimitsAreChangedWhereProcessesSeeThem(t *testing.T) {
	path := filepath.Join(t.TempDir(), LimitsFile)
	limits := Limits{Job: 12, UID: 1000, Generation: 1, JobStep: "12.0", PagesDir: "/t", Devices: []LimitsDevice{
		{UUID: "GPU-a", StepMemBytes: 1, JobMemBytes: 2, DeviceMemBytes: 3, SMPercent: 4, JobSMPercent: 5, Index: 6, Minor: 7}, {UUID: "GPU-b"}}}
	if err := WriteLimits(path, limits); err != nil {
		t.Fatal(err)
	}
	seen := mapped(t, path)
	want := limits
	want.Devices = []LimitsDevice{limits.Devices[0], {UUID: "GPU-b", StepMemBytes: 20, JobMemBytes: 30, SMPercent: 40, JobSMPercent: 50}}
	want.Generation = 2
	for range 2 { // the second time nothing is left to change
		if err := ChangeLimits(path, Limits{Devices: want.Devices}); err != nil {
			t.Fatal(err)
		}
		got, err := decodeLimits(seen)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("who has it mapped sees: %s", diff)
		}
	}
	for name, devices := range map[string][]LimitsDevice{"one device": want.Devices[:1], "another": {{UUID: "GPU-c"}, {UUID: "GPU-b"}}} {
		if err := ChangeLimits(path, Limits{Devices: devices}); err == nil {
			t.Errorf("%s: changed", name)
		}
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if err := ChangeLimits(path, want); !errors.Is(err, ErrLayout) {
		t.Errorf("cut page: %v", err)
	}
}
