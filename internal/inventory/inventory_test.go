// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

func TestInventoryRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inventory.json")
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	want := device.Inventory{Version: Version, BootID: "b", DriverVersion: "580.1", CUDAVersion: 13000,
		GPUs: []device.GPU{{UUID: "GPU-a", Index: 1, Minor: 3, Name: "NVIDIA H200", Type: "h200", MemMiB: 143771}, {UUID: "GPU-b", Lost: "gone"}}}
	if err := Write(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", st.Mode())
	}
}

func TestInventoryOfAnotherKindIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty":     "",
		"torn":      `{"version":1,"gpus":[`,
		"future":    `{"version":2,"gpus":[]}`,
		"no uuid":   `{"version":1,"gpus":[{"uuid":""}]}`,
		"same uuid": `{"version":1,"gpus":[{"uuid":"GPU-a"},{"uuid":"GPU-a"}]}`,
		"negative":  `{"version":1,"gpus":[{"uuid":"GPU-a","mem_mib":-1}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "inventory.json")
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(path); !errors.Is(err, ErrLayout) {
				t.Errorf("got %v", err)
			}
			if err := os.Chmod(path, 0o664); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(path); !errors.Is(err, trusted.ErrUntrusted) {
				t.Errorf("group-writable: got %v", err)
			}
		})
	}
}

func TestAnInventoryWithoutGPUsIsOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inventory.json")
	if err := Write(path, device.Inventory{BootID: "b"}); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path); err != nil || got.Version != Version || got.GPUs == nil || len(got.GPUs) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := Write(filepath.Join(path, "none"), device.Inventory{}); err == nil {
		t.Error("written where nothing can be")
	}
}

func TestBootID(t *testing.T) {
	id, err := BootID()
	if err != nil || len(id) != 36 || strings.Trim(id, "0123456789abcdef-") != "" {
		t.Errorf("%q, %v", id, err)
	}
}
