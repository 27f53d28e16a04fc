// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

func imageOf(slices ...Slice) image {
	return image{State: State{BootID: testBoot, Slices: slices}, rows: make([]span, len(slices))}
}

func joined(parts [][]byte, err error) ([]byte, error) { return bytes.Join(parts, nil), err }

// Whoever can make a state file makes its checksum too: what it says must be slices all the same.
func TestSlicesThatAreNoneAreDamage(t *testing.T) {
	for name, spoil := range map[string]func(*Slice){
		"no job":      func(s *Slice) { s.Job = 0 },
		"no device":   func(s *Slice) { s.Device = "" },
		"no memory":   func(s *Slice) { s.MemMiB = 0 },
		"less memory": func(s *Slice) { s.MemMiB = -1 },
	} {
		slice := sliceOf(1)
		if data, err := joined(imageOf(slice).encode()); err != nil {
			t.Fatal(err)
		} else if _, err := decode(data); err != nil {
			t.Fatalf("before it is spoilt: %v", err)
		}
		spoil(&slice)
		data, err := joined(imageOf(slice).encode())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decode(data); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
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

func FuzzDecode(f *testing.F) {
	data, err := joined(imageOf(sliceOf(1), sliceOf(2)).encode())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decode(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Errorf("neither damaged nor of another version: %v", err)
			}
			return
		}
		for _, s := range got.Slices {
			if s.Job == 0 || s.MemMiB <= 0 {
				t.Errorf("read %+v", s)
			}
		}
	})
}
