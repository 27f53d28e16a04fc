// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/detached"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// Start starts a reporter that outlives its caller. With reports disabled the spool is moved into the history instead.
func Start(cfg config.Config, configPath string) error {
	if !cfg.Report.Enabled {
		return archiveAll(cfg)
	}
	if err := detached.Start(configPath, "records", "--flush"); err != nil {
		return fmt.Errorf("start reporter: %w", err)
	}
	return nil
}

func archiveAll(cfg config.Config) error {
	records, _, err := usage.List(cfg.Spool())
	if err != nil {
		return err
	}
	for _, rec := range records {
		rec.Outcome = OutcomeDisabled
		if err := usage.Keep(cfg.Spool(), rec); err != nil {
			return err
		}
	}
	if len(records) == 0 {
		return nil
	}
	return usage.Trim(cfg.Spool())
}
