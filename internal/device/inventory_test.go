// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

func TestAnInventoryWithoutGPUsIsOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inventory.json")
	if err := WriteInventory(path, Inventory{BootID: "b"}); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadInventory(path); err != nil || got.Version != InventoryVersion || got.GPUs == nil || len(got.GPUs) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := WriteInventory(filepath.Join(path, "none"), Inventory{}); err == nil {
		t.Error("written where nothing can be")
	}
}

func TestByUUID(t *testing.T) {
	inv := Inventory{GPUs: []GPU{{UUID: "GPU-a", Index: 1}, {UUID: "GPU-b", Index: 2}}}
	for uuid, index := range map[UUID]NVMLIndex{"GPU-a": 1, "GPU-b": 2} {
		if gpu, ok := inv.ByUUID(uuid); !ok || gpu.Index != index {
			t.Errorf("%s is %+v, %v", uuid, gpu, ok)
		}
	}
	if gpu, ok := inv.ByUUID("GPU-c"); ok || gpu != (GPU{}) {
		t.Errorf("one that is not there is %+v", gpu)
	}
}

func TestBootID(t *testing.T) {
	id, err := BootID()
	if err != nil || len(id) != 36 || strings.Trim(id, "0123456789abcdef-") != "" {
		t.Errorf("%q, %v", id, err)
	}
}
