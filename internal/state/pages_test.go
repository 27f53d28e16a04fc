// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

// commit changes the state of a store.
func commit(t testing.TB, store Store, change func(*Tx)) {
	t.Helper()
	tx, err := store.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.End()
	change(tx)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// havePages makes a page in a folder of jobs' pages for each of these.
func havePages(t *testing.T, parent string, names ...string) {
	t.Helper()
	t.Cleanup(func() { privatemounts.Clear(filepath.Dir(parent)) })
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(parent, name), 0o755); err != nil {
			t.Fatal(err)
		}
		rewrite(t, filepath.Join(parent, name, "ledger"), nil)
	}
}

func wantEntries(t *testing.T, folder string, want ...string) {
	t.Helper()
	var got []string
	entries, err := os.ReadDir(folder)
	if err != nil && !(len(want) == 0 && errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", folder, diff)
	}
}

// Whoever died between the state and the pages: the next commit makes good, even of nothing.
func TestPagesOfJobsThatHoldNothingGo(t *testing.T) {
	store := newStore(t)
	put(t, store, 1, 2)
	havePages(t, store.Dir.AllPages(), "1", "2", "3")
	commit(t, store, func(*Tx) {})
	wantEntries(t, store.Dir.AllPages(), "1", "2")
	commit(t, store, func(tx *Tx) { tx.Drop(func(run Run) bool { return run.Job == 2 }) })
	wantEntries(t, store.Dir.AllPages(), "1")
}

func TestRebootForgetsPages(t *testing.T) {
	store := newStore(t)
	put(t, store, 1)
	havePages(t, store.Dir.AllPages(), "1")
	store.BootID = "boot-2"
	commit(t, store, func(*Tx) {})
	wantEntries(t, store.Dir.AllPages())
}

// What vgpud has refused is the library's until it may try again, and not after a boot; steps that run follow.
func TestAGPUThatVgpudRefusesIsTheLibrarys(t *testing.T) {
	store := newStore(t)
	put(t, store, 1)
	g := grant.Grant{Job: 1, BootID: testBoot, UID: uint32(os.Getuid()), Policy: request.PolicyCap, Isolation: grant.IsolationStrict,
		Slices: []device.Slice{{Device: "GPU-a", MemMiB: 1000, SMPercent: 30}}, NodeGPUsMiB: []int64{2000}, GPUTypes: []string{"h200"}}
	if err := errors.Join(os.MkdirAll(store.Dir.Job(1), 0o755), grant.Write(store.Dir.Grant(1), g)); err != nil {
		t.Fatal(err)
	}
	havePages(t, store.Dir.AllPages(), "1")
	if _, err := grant.Prepare(store.Dir, g, 0, "0", request.Request{}, nil); err != nil {
		t.Fatal(err)
	}
	is := func(refused bool) {
		t.Helper()
		limits, err := ledger.ReadLimits(filepath.Join(store.Dir.Step(1, "0"), ledger.LimitsFile))
		if err != nil || limits.Devices[0].Gated != refused || len(store.Refused()) > 0 != refused {
			t.Errorf("refused are %v, the step has %+v; %v", store.Refused(), limits.Devices, err)
		}
	}
	is(false)
	for range 2 {
		before, _ := os.Stat(store.Dir.State())
		if err := store.Refuse(t.Context(), "GPU-a"); err != nil {
			t.Fatal(err)
		}
		is(true)
		if now, _ := os.Stat(store.Dir.State()); os.SameFile(before, now) {
			t.Error("who watches the state file sees nothing of it")
		}
	}
	later := store
	if later.BootID = "another"; len(later.Refused()) != 0 {
		t.Error("what was refused before a boot still is")
	}
	if err := store.Accept(t.Context(), "GPU-a"); err != nil {
		t.Fatal(err)
	}
	is(false)
}

func TestARebuiltStateKnowsPolicyAndLimit(t *testing.T) {
	store := newStore(t)
	writeGrant(t, store, 7, func(g *grant.Grant) { g.Policy, g.Ends = request.PolicyElastic, 1_800_000_000 })
	commit(t, store, func(tx *Tx) {
		if held := tx.Held(); len(held) != 1 || held[0].Ends != 1_800_000_000 || !tx.Slices()[0].Elastic {
			t.Errorf("%+v", tx.Slices())
		}
	})
}
