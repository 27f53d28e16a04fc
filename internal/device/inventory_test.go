// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

func TestInventoryRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inventory.json")
	if _, err := ReadInventory(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	want := Inventory{Version: InventoryVersion, BootID: "b", DriverVersion: "580.1", CUDAVersion: 13000,
		GPUs: []GPU{{UUID: "GPU-a", Index: 1, Minor: 3, Name: "NVIDIA H200", Type: "h200", MemMiB: 143771}, {UUID: "GPU-b", Lost: "gone"}}}
	if err := WriteInventory(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadInventory(path)
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
			if _, err := ReadInventory(path); !errors.Is(err, ErrInventory) {
				t.Errorf("got %v", err)
			}
			if err := os.Chmod(path, 0o664); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadInventory(path); !errors.Is(err, trusted.ErrUntrusted) {
				t.Errorf("group-writable: got %v", err)
			}
		})
	}
}
