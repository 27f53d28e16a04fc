// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

func encoded(t testing.TB, slices ...Slice) []byte {
	t.Helper()
	data, err := encode(State{BootID: testBoot, Slices: slices}, gpusOf(nil, slices))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Whoever thinks that he has written grants slices that nobody else knows of.
func TestAStateThatCannotBeWrittenIsAnError(t *testing.T) {
	tryTo := func(store Store, spoil func()) {
		t.Helper()
		tx, err := store.Begin(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.End()
		spoil()
		for job := range uint32(1000) { // more than a page of memory, of which the file system may have one
			tx.Put(job+2, []Slice{sliceOf(job + 2)})
		}
		if err := tx.Commit(); err == nil {
			t.Error("written")
		}
	}
	store := newStore(t)
	tryTo(store, func() { // a folder in its place: it cannot be replaced
		if err := os.MkdirAll(filepath.Join(store.Dir.State(), "x"), 0o755); err != nil {
			t.Fatal(err)
		}
	})
	full := Store{BootID: testBoot, Log: hclog.NewNullLogger()}
	privatemounts.Full(t, func(folder string) {
		full.Dir = rundir.Dir(folder)
		put(t, full, 1)
	})
	tryTo(full, func() {})
	filling := filepath.Join(string(full.Dir), "filling")
	if st, err := os.Stat(filling); err != nil || os.Truncate(filling, st.Size()-20<<10) != nil { // room for the first half
		t.Fatal(err)
	}
	tryTo(full, func() {})
	if got, err := full.Read(); err != nil || !cmp.Equal(jobs(got.Slices), []uint32{1}) {
		t.Errorf("the state that was: %v, %v", got, err)
	}
}

// What is read is written again, and read as the same.
func FuzzDecode(f *testing.F) {
	data := encoded(f, sliceOf(1), sliceOf(2))
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(withoutPriority))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":3,"slices":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, gpus, err := decode(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Errorf("neither damaged nor of another version: %v", err)
			}
			return
		}
		again, err := encode(got, gpusOf(gpus, got.Slices))
		if err != nil {
			t.Fatal(err)
		}
		if after, _, err := decode(again); err != nil || !cmp.Equal(got, after) {
			t.Errorf("%+v is read as %+v, %v", got, after, err)
		}
	})
}

// A checksum keeps what a fuzzer makes from the rows: here they come to it.
func FuzzRow(f *testing.F) {
	f.Add(int64(1), int64(0), int64(0), int64(1), int64(0), int64(0), int64(0), int64(0))
	f.Add(int64(math.MaxUint32), int64(math.MaxUint32), int64(1), int64(math.MaxInt64), int64(-1), int64(7), int64(1), int64(-1))
	gpus := []gpu{{"GPU-a", 0, 0}, {"GPU-b", 1, 2}}
	f.Fuzz(func(t *testing.T, job, uid, on, mem, since, vgpud, elastic, priority int64) {
		s, ok := ofRow([]int64{job, uid, on, mem, since, vgpud, 30, 0, 0, elastic, 0, priority}, gpus)
		if !ok {
			return
		}
		if again, ok := ofRow(s.row(slices.Index(gpus, s.on())), gpus); !ok || again != s || s.Job == 0 || s.MemMiB <= 0 || int64(s.Job) != job || int64(s.UID) != uid {
			t.Errorf("%+v is written and read as %+v", s, again)
		}
	})
}
