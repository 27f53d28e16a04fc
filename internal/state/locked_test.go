// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"path/filepath"
	"testing"
)

func TestALockIsSeenAndLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.lock")
	is := func(want bool) {
		t.Helper()
		if got, err := IsLocked(path); err != nil || got != want {
			t.Fatalf("locked %v, %v, want %v", got, err, want)
		}
	}
	is(false)
	held, err := LockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	is(true)
	held.Close()
	is(false)
	again, err := LockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
