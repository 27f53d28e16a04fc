// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const testBoot = "boot-1"

func newStore(t testing.TB) Store {
	t.Helper()
	store := Store{Dir: rundir.Dir(filepath.Join(t.TempDir(), "run")), BootID: testBoot, Log: hclog.NewNullLogger()}
	if err := store.Prepare(); err != nil {
		t.Fatal(err)
	}
	return store
}

func sliceOf(job uint32) Slice {
	return Slice{Job: job, UID: 1000, Since: MillisOf(time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)),
		Slice: device.Slice{Device: device.UUID(fmt.Sprintf("GPU-%d", job%8)), MemMiB: 3000, SMPercent: 30}}
}

// put commits one slice for each of the jobs.
func put(t testing.TB, store Store, jobs ...uint32) {
	t.Helper()
	tx, err := store.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.End()
	for _, job := range jobs {
		tx.Put(job, []Slice{sliceOf(job)})
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// writeGrant leaves the grant of a job that holds one slice.
func writeGrant(t testing.TB, store Store, job uint32, change func(*grant.Grant)) {
	t.Helper()
	if err := os.MkdirAll(store.Dir.Job(job), 0o755); err != nil {
		t.Fatal(err)
	}
	s := sliceOf(job)
	g := grant.Grant{Job: job, BootID: testBoot, UID: s.UID, Since: s.Since.Time(), Slices: []device.Slice{s.Slice}}
	if change != nil {
		change(&g)
	}
	if err := grant.Write(store.Dir.Grant(job), g); err != nil {
		t.Fatal(err)
	}
}

func jobs(slices []Slice) (ids []uint32) {
	for _, s := range slices {
		ids = append(ids, s.Job)
	}
	return ids
}

func TestCommitAndRead(t *testing.T) {
	store := newStore(t)
	if got, err := store.Read(); err != nil || len(got.Slices) != 0 {
		t.Errorf("before anything was written: %v, %v", got, err)
	}
	put(t, store, 1, 2)
	put(t, store, 2, 3)
	got, err := store.Read()
	if err != nil {
		t.Fatal(err)
	}
	want := State{BootID: testBoot, Slices: []Slice{sliceOf(1), sliceOf(2), sliceOf(3)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	tx, err := store.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if dropped := tx.Drop(func(run Run) bool { return run.Job == 2 }); len(dropped) != 1 {
		t.Errorf("dropped %v", dropped)
	}
	tx.End() // without a commit
	if got, err := store.Read(); err != nil || len(got.Slices) != 3 {
		t.Errorf("a change that was not committed is seen: %v, %v", got, err)
	}
	if st, _ := os.Stat(store.Dir.State()); st.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", st.Mode())
	}
	if st, _ := os.Stat(store.Dir.Lock()); st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the lock %v", st.Mode())
	}
}

func TestDamagedFilesAreMovedAsideAndRunningJobsKeepTheirSlices(t *testing.T) {
	good := func(t *testing.T, store Store) []byte {
		put(t, store, 1, 2)
		data, err := os.ReadFile(store.Dir.State())
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, damage := range map[string]func(t *testing.T, store Store, path string){
		"empty": func(t *testing.T, _ Store, path string) { rewrite(t, path, nil) },
		"truncated": func(t *testing.T, store Store, path string) {
			data := good(t, store)
			rewrite(t, path, data[:len(data)/2])
		},
		"one bit": func(t *testing.T, store Store, path string) {
			rewrite(t, path, []byte(strings.Replace(string(good(t, store)), "3000", "3001", 1)))
		},
		"boot id": func(t *testing.T, store Store, path string) {
			rewrite(t, path, []byte(strings.Replace(string(good(t, store)), testBoot, "boot-2", 1)))
		},
		"not json": func(t *testing.T, _ Store, path string) { rewrite(t, path, []byte("\x00\x01\x02")) },
		"foreign":  func(t *testing.T, _ Store, path string) { rewrite(t, path, []byte(`{"hello": 1}`)) },
		"version 0": func(t *testing.T, store Store, path string) {
			rewrite(t, path, []byte(strings.Replace(string(good(t, store)), `"version":2`, `"version":0`, 1)))
		},
		"group-writable": func(t *testing.T, store Store, path string) {
			good(t, store)
			if err := os.Chmod(path, 0o664); err != nil {
				t.Fatal(err)
			}
		},
		"a link to a good file": func(t *testing.T, store Store, path string) {
			elsewhere := filepath.Join(t.TempDir(), "state")
			rewrite(t, elsewhere, good(t, store))
			os.Remove(path)
			if err := os.Symlink(elsewhere, path); err != nil {
				t.Fatal(err)
			}
		},
		"a folder": func(t *testing.T, _ Store, path string) {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"another owner": func(t *testing.T, store Store, path string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			good(t, store)
			if err := os.Chown(path, 1, 1); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { checkMovedAside(t, damage) })
	}
}

func checkMovedAside(t *testing.T, damage func(t *testing.T, store Store, path string)) {
	store := newStore(t)
	damage(t, store, store.Dir.State())
	writeGrant(t, store, 7, nil)
	writeGrant(t, store, 8, nil)
	writeGrant(t, store, 9, func(g *grant.Grant) { g.Slices, g.Refusal = nil, "no room" })
	writeGrant(t, store, 10, func(g *grant.Grant) { g.BootID = "boot-0" })
	writeGrant(t, store, 12, func(g *grant.Grant) { g.Job = 99 }) // another job's
	writeGrant(t, store, 11, nil)
	if err := os.Chmod(store.Dir.Grant(11), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Read(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a reader believes it: %v", err)
	}
	put(t, store, 20)
	got, err := store.Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint32{7, 8, 20}, jobs(got.Slices)); diff != "" {
		t.Error(diff)
	}
	aside, _ := filepath.Glob(store.Dir.State() + ".corrupt-*")
	if len(aside) != 1 {
		t.Errorf("moved aside: %v", aside)
	}
}

func rewrite(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMissingFileIsMadeAgainFromGrants(t *testing.T) {
	store := newStore(t)
	put(t, store, 1)
	writeGrant(t, store, 1, nil)
	if err := os.Remove(store.Dir.State()); err != nil {
		t.Fatal(err)
	}
	put(t, store, 2)
	if got, err := store.Read(); err != nil || len(got.Slices) != 2 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestFewDamagedFilesAreKept(t *testing.T) {
	path := newStore(t).Dir.State()
	for second := range 3 * corruptKept {
		rewrite(t, path, []byte("x"))
		if _, err := moveAside(path, time.Date(2026, 1, 1, 0, 0, second+1, 0, time.UTC)); err != nil {
			t.Fatal(err)
		}
	}
	aside, _ := filepath.Glob(path + ".corrupt-*")
	if len(aside) != corruptKept {
		t.Errorf("%d kept, want %d", len(aside), corruptKept)
	}
	for _, path := range aside {
		if !strings.Contains(path, "20260101T00001") { // the last five of fifteen seconds
			t.Errorf("%s was kept instead of a newer one", path)
		}
	}
}

func TestFutureVersionIsRefusedAndLeftAlone(t *testing.T) {
	store := newStore(t)
	future := []byte(`{"version":3,"boot_id":"boot-1","checksum":"of another kind","slices":{}}`)
	rewrite(t, store.Dir.State(), future)
	if _, err := store.Begin(context.Background()); !errors.Is(err, ErrVersion) {
		t.Errorf("a writer: %v", err)
	}
	if _, err := store.Read(); !errors.Is(err, ErrVersion) {
		t.Errorf("a reader: %v", err)
	}
	if data, err := os.ReadFile(store.Dir.State()); err != nil || string(data) != string(future) {
		t.Errorf("it was changed: %s, %v", data, err)
	}
	// The lock was given back.
	if err := os.Remove(store.Dir.State()); err != nil {
		t.Fatal(err)
	}
	put(t, store, 1)
}

func TestRebootFreesEverything(t *testing.T) {
	store := newStore(t)
	put(t, store, 1, 2)
	writeGrant(t, store, 1, nil)
	store.BootID = "boot-2"
	if got, err := store.Read(); err != nil || len(got.Slices) != 0 {
		t.Errorf("a reader sees %v, %v", got, err)
	}
	put(t, store, 3)
	got, err := store.Read()
	if err != nil || len(got.Slices) != 1 || got.Slices[0].Job != 3 || got.BootID != "boot-2" {
		t.Errorf("got %v, %v", got, err)
	}
	if left, _ := os.ReadDir(store.Dir.Jobs()); len(left) != 0 {
		t.Errorf("folders of dead jobs: %v", left)
	}
}

func TestRunDirThatOthersCanChangeIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"writable":  func(dir string) error { return os.Chmod(dir, 0o777) },
		"group":     func(dir string) error { return os.Chmod(dir, 0o775) },
		"others":    func(dir string) error { return os.Chmod(dir, 0o757) },
		"owner":     func(dir string) error { return os.Chown(dir, 1, 0) },
		"jobs":      func(dir string) error { return os.Chown(filepath.Join(dir, "jobs"), 1, 0) },
		"file":      func(dir string) error { os.RemoveAll(dir); return os.WriteFile(dir, nil, 0o644) },
		"link":      func(dir string) error { os.RemoveAll(dir); return os.Symlink("/run", dir) },
		"lock link": func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "state.lock")) },
		"lock fifo": func(dir string) error { return os.Mkdir(filepath.Join(dir, "state.lock"), 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			if err := spoil(string(store.Dir)); err != nil {
				if os.Geteuid() != 0 {
					t.Skip("only root can give a folder away")
				}
				t.Fatal(err)
			}
			if _, err := store.Begin(context.Background()); err == nil {
				t.Error("it was used")
			}
		})
	}
}

func TestLockIsGivenUpAtTheDeadline(t *testing.T) {
	store := newStore(t)
	tx, err := store.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := store.Begin(ctx); !errors.Is(err, trusted.ErrLocked) {
		t.Errorf("got %v", err)
	}
	tx.End()
	put(t, store, 1) // one that gave up must not keep the lock when it comes
}

func TestManyWritersLoseNothing(t *testing.T) {
	store := newStore(t)
	var done sync.WaitGroup
	const writers, each = 64, 5
	for w := range uint32(writers) {
		done.Go(func() {
			for n := range uint32(each) {
				tx, err := store.Begin(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				job := 1 + w*each + n
				tx.Put(job, []Slice{sliceOf(job)})
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
				tx.End()
				if _, err := store.Read(); err != nil { // never torn
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	got, err := store.Read()
	if err != nil || len(got.Slices) != writers*each {
		t.Errorf("%d slices, want %d: %v", len(got.Slices), writers*each, err)
	}
}
