// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Prologs go by the new config.yaml, and with the first of them so does vgpud.
func TestItFollowsTheConfiguration(t *testing.T) {
	d := prepared(t)
	d.begin()
	d.configure("kill")
	written := filepath.Join(d.run, "state.json.new")
	if err := errors.Join(os.WriteFile(written, nil, 0o644), os.Rename(written, filepath.Join(d.run, "state.json"))); err != nil { // as the next prolog does
		t.Fatal(err)
	}
	d.readAgain()
}
