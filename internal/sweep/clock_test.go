// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A clock that is set back leaves times that lie ahead: the sweep does not wait for them.
func TestASweepAfterTheClockWasSetBack(t *testing.T) {
	n := newNode(t)
	ahead := time.Now().Add(10 * time.Hour)
	n.holds(5, 0, ahead)
	n.folder(1, 0, "no room")
	n.file(n.Store.Dir.None(6))
	n.file(filepath.Join(string(n.Store.Dir), ".prolog.json123"))
	for _, path := range []string{n.Store.Dir.Job(1), n.Store.Dir.None(6), filepath.Join(string(n.Store.Dir), ".prolog.json123")} {
		n.check(os.Chtimes(path, ahead, ahead))
	}
	n.Every = 5 * time.Minute
	n.check(os.WriteFile(n.Config.Run().PassLock(), []byte("\n"), 0o600))
	n.check(os.Chtimes(n.Config.Run().PassLock(), ahead, ahead))
	if result := n.sweep(); !result.Looked || result.Slices != 1 || result.Folders != 1 || result.Marks != 1 || result.Temporaries != 1 {
		t.Errorf("swept %+v", result)
	}
	n.left()
	if result := n.sweep(); result.Looked {
		t.Error("the next sweep comes at once")
	}
}
