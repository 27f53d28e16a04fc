// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// afterOthers is how long after a job's end its AdminComment is left alone: not at all where nothing of the
// site's is started then, or slurm.conf cannot be read.
func afterOthers() time.Duration {
	conf, err := slurmconf.Read(sitecheck.DefaultSlurmConf())
	if err != nil {
		return 0
	}
	if _, _, there := conf.Value("EpilogSlurmctld"); !there {
		return 0
	}
	return report.DefaultAfter
}
