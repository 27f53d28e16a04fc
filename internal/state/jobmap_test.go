// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// mapped is what stands in the folder.
func mapped(t *testing.T, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found[entry.Name()] = string(text)
	}
	return found
}

// mapStore is of a node with three GPUs, of which the last has no slice ever.
func mapStore(t *testing.T) Store {
	t.Helper()
	dir := rundir.Dir(filepath.Join(t.TempDir(), "run"))
	store := Store{Dir: dir, BootID: "boot", Log: hclog.NewNullLogger(), JobMap: filepath.Join(t.TempDir(), "map")}
	if err := store.Prepare(); err != nil {
		t.Fatal(err)
	}
	inv := device.Inventory{BootID: "boot"}
	for i, uuid := range []device.UUID{"GPU-a", "GPU-b", "GPU-c"} {
		inv.GPUs = append(inv.GPUs, device.GPU{UUID: uuid, Index: device.NVMLIndex(i), MemMiB: 1000})
	}
	if err := inventory.Write(dir.Inventory(), inv); err != nil {
		t.Fatal(err)
	}
	return store
}

func change(t *testing.T, store Store, alter func(*Tx)) {
	t.Helper()
	tx, err := store.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.End()
	alter(tx)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func lying(job uint32, gpus ...int) (held []Slice) {
	for _, i := range gpus {
		held = append(held, Slice{Job: job, Slice: device.Slice{Device: device.UUID("GPU-" + string(rune('a'+i))), Index: device.NVMLIndex(i), MemMiB: 10}})
	}
	return held
}

func TestTheJobMapSaysWhatTheStateSays(t *testing.T) {
	store := mapStore(t)
	change(t, store, func(tx *Tx) { tx.Put(7, lying(7, 0, 1)); tx.Put(9, lying(9, 0)) })
	if diff := cmp.Diff(map[string]string{"0": "7\n9\n", "1": "7\n"}, mapped(t, store.JobMap)); diff != "" {
		t.Errorf("two jobs (-want +got):\n%s", diff)
	}
	// Somebody else's file, of a GPU that has no slices; and one that root is meant to write through.
	other := filepath.Join(store.JobMap, "2")
	if err := os.WriteFile(other, []byte("5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(store.JobMap, "0")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(store.JobMap, "0")); err != nil {
		t.Fatal(err)
	}
	change(t, store, func(tx *Tx) { tx.Drop(func(run Run) bool { return run.Job == 7 }) })
	if diff := cmp.Diff(map[string]string{"0": "9\n", "2": "5\n"}, mapped(t, store.JobMap)); diff != "" {
		t.Errorf("one job (-want +got):\n%s", diff)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
		t.Errorf("written through a link: %q, %v", text, err)
	}
	// What an epilog that was killed left is taken away by whoever commits next.
	if err := os.WriteFile(filepath.Join(store.JobMap, "1"), []byte("7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	change(t, store, func(tx *Tx) { tx.Drop(func(Run) bool { return true }) })
	if diff := cmp.Diff(map[string]string{"2": "5\n"}, mapped(t, store.JobMap)); diff != "" {
		t.Errorf("no job (-want +got):\n%s", diff)
	}
}

func TestAJobMapThatOthersCanWriteIsLeftAlone(t *testing.T) {
	store := mapStore(t)
	if err := os.Mkdir(store.JobMap, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(store.JobMap, 0o777); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	store.Log = hclog.New(&hclog.LoggerOptions{Output: &log})
	change(t, store, func(tx *Tx) { tx.Put(7, lying(7, 0)) })
	if found := mapped(t, store.JobMap); len(found) > 0 || !strings.Contains(log.String(), "others can write there") {
		t.Errorf("%v, log: %s", found, log.String())
	}
}
