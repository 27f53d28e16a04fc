// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
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

func wantBoard(t *testing.T, store Store, gpu device.UUID, want ...ledger.BoardSlice) {
	t.Helper()
	got, err := ledger.ReadBoard(store.Dir.Board(gpu))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Slices); diff != "" {
		t.Errorf("board of %s: %s", gpu, diff)
	}
}

func on(gpu device.UUID, job uint32, percent int) Slice {
	s := sliceOf(job)
	s.Device, s.SMPercent = gpu, percent
	return s
}

func TestBoardsFollowTheState(t *testing.T) {
	store := newStore(t)
	elastic := []Slice{on("GPU-a", 2, 70), on("GPU-b", 2, 0)}
	for i := range elastic {
		elastic[i].Elastic = true
	}
	commit(t, store, func(tx *Tx) {
		tx.Put(1, []Slice{on("GPU-a", 1, 30)})
		tx.Put(2, elastic)
	})
	first := ledger.BoardSlice{Job: 1, SMPercent: 30, UID: 1000}
	wantBoard(t, store, "GPU-a", first, ledger.BoardSlice{Job: 2, SMPercent: 70, Flags: ledger.Elastic, UID: 1000})
	wantBoard(t, store, "GPU-b", ledger.BoardSlice{Job: 2, Device: 1, Flags: ledger.Elastic, UID: 1000})
	commit(t, store, func(tx *Tx) { tx.Drop(func(run Run) bool { return run.Job == 2 }) })
	wantBoard(t, store, "GPU-a", first)
	wantBoard(t, store, "GPU-b")
}

// A job whose library is of another release keeps its own pacing, and so do all on its GPU.
func TestBoardsSayWhoKeepsTheShares(t *testing.T) {
	store := newStore(t)
	store.KeptBy = ledger.KeptByVgpud
	of := func(job uint32, turns uint32) Slice {
		s := on("GPU-a", job, 30)
		s.Turns, s.Elastic = turns, true
		return s
	}
	keptBy := func() ledger.Keeper {
		board, err := ledger.ReadBoard(store.Dir.Board("GPU-a"))
		if err != nil {
			t.Fatal(err)
		}
		if current, err := store.Read(); err != nil || len(store.Misposted(current)) != 0 {
			t.Errorf("misposted: %v, %v", store.Misposted(current), err)
		}
		return board.KeptBy
	}
	commit(t, store, func(tx *Tx) { tx.Put(1, []Slice{of(1, ledger.VgpudVersion)}) })
	if keptBy() != ledger.KeptByVgpud {
		t.Error("the library keeps what vgpud could")
	}
	for _, turns := range []uint32{0, 5, ledger.VgpudVersion + 1} {
		commit(t, store, func(tx *Tx) { tx.Put(2, []Slice{of(2, turns)}) })
		if keptBy() != ledger.KeptByLibrary {
			t.Errorf("vgpud keeps a job of layout %d", turns)
		}
	}
	capped := of(2, ledger.VgpudVersion)
	capped.Elastic, capped.SMPercent = false, 30
	commit(t, store, func(tx *Tx) { tx.Put(2, []Slice{capped}) })
	if keptBy() != ledger.KeptByVgpud {
		t.Error("the library keeps a cap")
	}
	commit(t, store, func(tx *Tx) { tx.Drop(func(run Run) bool { return run.Job == 2 }) })
	if keptBy() != ledger.KeptByVgpud {
		t.Error("the library keeps what vgpud could, once the older job has gone")
	}
	store.KeptBy = ledger.KeptByLibrary
	if current, err := store.Read(); err != nil || len(store.Misposted(current)) != 1 {
		t.Errorf("a board of another configuration is none of those that say something else: %v", err)
	}
	commit(t, store, func(*Tx) {})
	if keptBy() != ledger.KeptByLibrary {
		t.Error("the configuration says library")
	}
}

// What vgpud has refused is the library's until it may try again, and not after a boot.
func TestAGPUThatVgpudRefusesIsTheLibrarys(t *testing.T) {
	store := newStore(t)
	store.KeptBy = ledger.KeptByVgpud
	slice := on("GPU-a", 1, 30)
	slice.Turns = ledger.VgpudVersion
	commit(t, store, func(tx *Tx) { tx.Put(1, []Slice{slice}) })
	is := func(want ledger.Keeper, refused int) {
		t.Helper()
		board, err := ledger.ReadBoard(store.Dir.Board("GPU-a"))
		current, readErr := store.Read()
		if err != nil || readErr != nil || board.KeptBy != want || len(store.Misposted(current)) != 0 || len(store.Refused()) != refused {
			t.Errorf("kept by %d, refused %v; %v, %v", board.KeptBy, store.Refused(), err, readErr)
		}
	}
	is(ledger.KeptByVgpud, 0)
	for range 2 {
		before, _ := os.Stat(store.Dir.State())
		if err := store.Refuse(t.Context(), "GPU-a"); err != nil {
			t.Fatal(err)
		}
		is(ledger.KeptByLibrary, 1)
		if now, _ := os.Stat(store.Dir.State()); os.SameFile(before, now) {
			t.Error("who watches the state file sees nothing of it")
		}
	}
	later := store
	if later.BootID = "another"; len(later.Refused()) != 0 {
		t.Error("what was refused before a boot still is")
	}
	if err := store.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	is(ledger.KeptByVgpud, 0)
}

// Whoever died between the state and the boards: the next commit makes good, even of nothing.
func TestNextCommitRepairsBoards(t *testing.T) {
	store := newStore(t)
	commit(t, store, func(tx *Tx) { tx.Put(1, []Slice{on("GPU-a", 1, 30)}) })
	claims := store.Dir.Claims(1)
	if err := os.Mkdir(store.Dir.Pages(1), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := ledger.CreateClaims(claims, 1, 1, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Fatal(err)
	}
	if err := write(store.Dir.State(), imageOf(on("GPU-b", 2, 50))); err != nil {
		t.Fatal(err)
	}
	rewrite(t, store.Dir.Turn(".GPU-b123"), []byte("half a board"))
	misposted := []device.UUID{"GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-e", "GPU-f"} // in order
	for _, gpu := range misposted[2:] {
		rewrite(t, store.Dir.Board(gpu), []byte("no board"))
	}
	if current, err := store.Read(); err != nil || !cmp.Equal(store.Misposted(current), misposted) {
		t.Errorf("misposted: %v, %v", store.Misposted(current), err)
	}
	commit(t, store, func(*Tx) {})
	if current, err := store.Read(); err != nil || len(store.Misposted(current)) != 0 {
		t.Errorf("misposted: %v, %v", store.Misposted(current), err)
	}
	wantBoard(t, store, "GPU-a")
	wantBoard(t, store, "GPU-b", ledger.BoardSlice{Job: 2, SMPercent: 50, UID: 1000})
	for _, path := range []string{claims, store.Dir.Turn(".GPU-b123")} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s stays: %v", path, err)
		}
	}
}

func TestClaimsOfJobsThatHoldSlicesStay(t *testing.T) {
	store := newStore(t)
	put(t, store, 1)
	if err := os.Mkdir(store.Dir.Pages(1), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := ledger.CreateClaims(store.Dir.Claims(1), 1, 1, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Fatal(err)
	}
	put(t, store, 2)
	if _, err := os.Lstat(store.Dir.Claims(1)); err != nil {
		t.Error(err)
	}
}

func TestRebootForgetsBoardsAndClaims(t *testing.T) {
	store := newStore(t)
	put(t, store, 1)
	rewrite(t, store.Dir.Pages(1), nil)
	store.BootID = "boot-2"
	commit(t, store, func(*Tx) {})
	if left, err := os.ReadDir(store.Dir.Turns()); err != nil || len(left) != 0 {
		t.Errorf("left of another boot: %v, %v", left, err)
	}
}

func TestARebuiltStateKnowsPolicyAndLimit(t *testing.T) {
	store := newStore(t)
	writeGrant(t, store, 7, func(g *grant.Grant) { g.Policy, g.Ends = request.PolicyElastic, 1_800_000_000 })
	commit(t, store, func(tx *Tx) {
		if held := tx.Held(); len(held) != 1 || held[0].Ends != 1_800_000_000 {
			t.Errorf("%+v", held)
		}
	})
	wantBoard(t, store, "GPU-7", ledger.BoardSlice{Job: 7, SMPercent: 30, Flags: ledger.Elastic, UID: 1000})
}

func TestMoreSlicesThanABoardTakesAreNoError(t *testing.T) {
	store := newStore(t)
	commit(t, store, func(tx *Tx) {
		for job := range uint32(200) {
			tx.Put(job+1, []Slice{on("GPU-a", job+1, 0)})
		}
	})
	got, err := ledger.ReadBoard(store.Dir.Board("GPU-a"))
	if err != nil || len(got.Slices) != 128 {
		t.Errorf("%d slices, %v", len(got.Slices), err)
	}
	if current, err := store.Read(); err != nil || len(current.Slices) != 200 {
		t.Error(fmt.Errorf("%d slices, %w", len(current.Slices), err))
	}
}

func BenchmarkPostBoards(b *testing.B) {
	for _, gpus := range []int{2, 8} {
		b.Run(fmt.Sprintf("gpus=%d", gpus), func(b *testing.B) {
			store := newStore(b)
			commit(b, store, func(tx *Tx) {
				for job := range uint32(80) {
					tx.Put(job+1, []Slice{on(device.UUID(fmt.Sprintf("GPU-%d", int(job)%gpus)), job+1, 10)})
				}
			})
			tx, err := store.Begin(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			defer tx.End()
			for b.Loop() {
				tx.postBoards()
			}
		})
	}
}
