// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package trusted

import (
	"os"
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
	lock := func() *os.File {
		t.Helper()
		held, err := TryLock(path)
		if err != nil || held == nil {
			t.Fatal(held, err)
		}
		return held
	}
	is(false)
	held := lock()
	is(true)
	if second, err := TryLock(path); second != nil || err != nil {
		t.Fatal(second, err)
	}
	held.Close()
	is(false)
	lock().Close()
}
