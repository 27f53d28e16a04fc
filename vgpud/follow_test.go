// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Prologs go by the new config.yaml, so what is kept by the library now must not be counted by vgpud as well.
func TestItFollowsTheConfiguration(t *testing.T) {
	d := prepared(t, "vgpud")
	d.begin()
	d.configure("library")
	written := filepath.Join(d.run, "state.json.new")
	if err := errors.Join(os.WriteFile(written, nil, 0o644), os.Rename(written, filepath.Join(d.run, "state.json"))); err != nil { // as the next prolog does
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ends with %v: %s", err, d.said())
		}
	case <-time.After(10 * time.Second):
		t.Errorf("it goes on: %s", d.said())
	}
}
