// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// Start has a reporter look at the spool, one that outlives its caller. Where usage is kept out of the database,
// the spool is moved into the history instead.
//
// The caller's record must be in the spool by now: then whoever is at work there will see it (usage.AtWork), and no
// other process is needed.
func Start(cfg config.Config, configPath string) error {
	if why := whyNot(cfg); why != "" {
		return archiveAll(cfg, "not written: "+why)
	}
	if busy, err := usage.AtWork(cfg.Spool()); err == nil && busy {
		return nil
	}
	// A spool that cannot be looked at is the reporter's to complain of.
	if err := installed.Start(configPath, "records", "--flush"); err != nil {
		return fmt.Errorf("start reporter: %w", err)
	}
	return nil
}

func archiveAll(cfg config.Config, outcome string) error {
	records, _, err := usage.List(cfg.Spool())
	if err != nil {
		return err
	}
	for _, rec := range records {
		rec.Outcome = outcome
		if err := usage.Keep(cfg.Spool(), rec); err != nil {
			return err
		}
	}
	if len(records) == 0 {
		return nil
	}
	return usage.Trim(cfg.Spool())
}
