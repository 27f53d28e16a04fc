// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package trusted

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
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
		held, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			err = unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	is(false)
	held := lock()
	is(true)
	held.Close()
	is(false)
	lock().Close()
}
