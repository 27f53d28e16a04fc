// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

func TestCountsOfManyPrologsAtOnce(t *testing.T) {
	dir := rundir.Dir(t.TempDir())
	const each = 20
	var all sync.WaitGroup
	errs := make(chan error, 2*each)
	for range each {
		all.Go(func() { errs <- Add(dir, "boot", Fragmentation, 2*time.Second) })
		all.Go(func() { errs <- Add(dir, "boot", "", 20*time.Millisecond) })
	}
	all.Wait()
	lost := uint64(0)
	for range 2 * each {
		if <-errs != nil { // it had to wait too long, and says so
			lost++
		}
	}
	c, err := Read(dir, "boot")
	if err != nil || c.Prologs != 2*each-lost || c.Refusals[Fragmentation] > each || c.Within[len(Bounds)-1] != c.Prologs {
		t.Errorf("%+v with %d lost, %v", c, lost, err)
	}
	if entries, err := os.ReadDir(string(dir)); err != nil || len(entries) != 2 || entries[1].Name() != filepath.Base(dir.Lock()) {
		t.Errorf("there is %v, want the counts and the state's lock; %v", entries, err)
	}
	if c.Within[0] != 0 || c.Within[1]+c.Refusals[Fragmentation] != c.Prologs {
		t.Errorf("the buckets do not fit: %+v", c)
	}
}

func TestCountsOfAnotherBootAndDamagedOnes(t *testing.T) {
	dir := rundir.Dir(t.TempDir())
	if err := Add(dir, "one", Never, time.Second); err != nil {
		t.Fatal(err)
	}
	if c, err := Read(dir, "two"); err != nil || c.Prologs != 0 || c.BootID != "two" {
		t.Errorf("after a reboot: %+v, %v", c, err)
	}
	for _, text := range []string{"", "{", `{"refusals": 3}`, `{"version":1,"boot_id":"one","within":[1]}`} {
		if err := os.WriteFile(dir.Counts(), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Add(dir, "one", Never, time.Second); err != nil {
			t.Errorf("with %q: %v", text, err)
		}
		if c, err := Read(dir, "one"); err != nil || c.Prologs != 1 || c.Refusals[Never] != 1 {
			t.Errorf("after %q: %+v, %v", text, c, err)
		}
	}
	if err := os.Chmod(dir.Counts(), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, "one"); err == nil {
		t.Error("a file that others can write was believed")
	}
}
