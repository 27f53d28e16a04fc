// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// An epilog starts no reporter where one is at work. Nothing is lost by it: whom it finds is a reporter, which looks
// again when it has given the lock back (TestARecordThatComesAtTheEndIsReported), or another epilog that asks the
// same, whose own reporter comes later and finds both records (TestFlushLeavesAnotherReporterAlone).
func TestStartLeavesTheSpoolToWhoIsAtWork(t *testing.T) {
	cfg := config.Default()
	cfg.SpoolDir = t.TempDir()
	mustWrite(t, cfg.Spool(), sample(7))
	unlock, err := usage.Lock(cfg.Spool())
	if err != nil || unlock == nil {
		t.Fatalf("lock: %v", err)
	}
	if err := Start(cfg, "/none"); err != nil {
		t.Errorf("a reporter was to be started beside another: %v", err)
	}
	unlock()
	for range 2 { // who asks keeps no lock
		if err := Start(cfg, "/none"); err == nil {
			t.Error("no reporter was to be started although none is at work")
		}
	}
}
