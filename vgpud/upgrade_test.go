// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// install puts another file in the program's place.
func (d *daemon) install() {
	d.t.Helper()
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(d.program+".new", text, 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(d.program+".new", d.program); err != nil {
		d.t.Fatal(err)
	}
}

// isInstalled checks that both run the program that is installed now.
func (d *daemon) isInstalled() {
	d.t.Helper()
	for _, pid := range []int{d.cmd.Process.Pid, d.worker()} {
		if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || program != d.program {
			d.t.Errorf("it is %s, %v", program, err)
		}
	}
}

// change is any of the node's slices.
func (d *daemon) change() {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.run, "new"), []byte("{}"), 0o644); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(d.run, "new"), filepath.Join(d.run, "state.json")); err != nil {
		d.t.Fatal(err)
	}
}

// An upgrade under it: the supervisor is the same process, with the newer program, from the next change of the node's slices on.
func TestANewerProgramTakesOver(t *testing.T) {
	d := prepared(t)
	d.program = filepath.Join(t.TempDir(), "vgpud")
	d.install()
	d.begin()
	first := d.worker()
	d.install()
	d.change()
	d.await("another worker", func() bool { w := d.worker(); return w != 0 && w != first && isWatching(w) })
	d.isInstalled()
}

// A worker that ends before it says that it is replaced leaves no older supervisor.
func TestANewerProgramTakesOverFromAWorkerThatDied(t *testing.T) {
	d := prepared(t)
	d.program = filepath.Join(t.TempDir(), "vgpud")
	d.install()
	d.begin()
	first := d.worker()
	d.install()
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.await("another worker", func() bool { w := d.worker(); return w != 0 && w != first && isWatching(w) })
	d.isInstalled()
}
