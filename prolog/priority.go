// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

// mayGoFirst says why a job can have no slices of priority latency here, by what the controller says of it.
func (p *prolog) mayGoFirst(want place.Want, told slurm.Job) error {
	switch {
	case !p.cfg.MayGoFirst(told.QOS, told.Partition):
		return fmt.Errorf("this node has it for %s, and the job is of QOS %s in partition %s",
			admitted(p.cfg), orUnknown(told.QOS), orUnknown(told.Partition))
	case want.SMPercent == 0:
		return errors.New("give --vgpu-cores as well, the share at which its credit comes")
	}
	return nil
}

// admitted is who may, in words.
func admitted(cfg config.Config) string {
	var who []string
	if len(cfg.LatencyQOS) > 0 {
		who = append(who, "QOS "+strings.Join(cfg.LatencyQOS, ", "))
	}
	if len(cfg.LatencyPartitions) > 0 {
		who = append(who, "partition "+strings.Join(cfg.LatencyPartitions, ", "))
	}
	if who == nil {
		return "nobody"
	}
	return strings.Join(who, " and ")
}

func orUnknown(name string) string {
	if name == "" {
		return "(not known)"
	}
	return name
}
