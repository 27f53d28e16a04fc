// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Prologs go by the new config.yaml, and with the first of them so does vgpud.
func TestItFollowsTheConfiguration(t *testing.T) {
	d := prepared(t)
	d.begin()
	d.configure("kill")
	d.prolog()
	d.readAgain(1)
}

// prolog changes the state file, as the next one does.
func (d *daemon) prolog() {
	d.t.Helper()
	written := filepath.Join(d.run, "state.json.new")
	if err := errors.Join(os.WriteFile(written, nil, 0o644), os.Rename(written, filepath.Join(d.run, "state.json"))); err != nil {
		d.t.Fatal(err)
	}
}

// Of a config.yaml that is not believed, where no earlier one was, it takes nothing: with the default of run_dir it would not see the prolog.
func TestItKeepsWhatItHasWhereTheConfigurationIsNotBelieved(t *testing.T) {
	d := prepared(t)
	d.begin()
	if err := errors.Join(os.WriteFile(d.config, []byte("shares_by: vgpud\n"), 0o644), d.cmd.Process.Signal(unix.SIGHUP)); err != nil {
		t.Fatal(err)
	}
	d.readAgain(1)
	if said := d.said(); !strings.Contains(said, "there is no good copy") || !strings.Contains(said, "vgpud keeps all shares") {
		t.Errorf("it says\n%s", said)
	}
	d.await("a worker that watches", func() bool { return isWatching(d.worker()) })
	d.configure("kill")
	d.prolog()
	d.readAgain(2)
}
