// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/metrics"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

const metricsText = `Print as JSON what vgpu-exporter makes metrics of; "vgpu-exporter --text" prints the metrics.

Root sees all slices, others their own. A figure that cannot be read or was not measured is left out and is
never 0; "sources" says what could be read.`

func metricsCommand(o *options) *cobra.Command {
	var steps bool
	var over time.Duration
	command := &cobra.Command{
		Use:     "metrics [--steps] [--over DURATION]",
		Short:   "Print what vgpu-exporter makes metrics of",
		Long:    metricsText,
		Example: "  vgpuctl metrics\n  vgpuctl metrics --over 1s | jq '.slices[] | {job, duty_ratio}'",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if over < 0 || over > maxBetween {
				return exitError{exitUsage, fmt.Errorf("--over %s: from 0s to %s", over, maxBetween)}
			}
			node, problem := o.metrics(steps, over)
			if node == nil {
				return problem
			}
			return errors.Join(problem, printJSON(command.OutOrStdout(), node))
		},
	}
	command.Flags().BoolVar(&steps, "steps", false, "each running step as well")
	command.Flags().DurationVar(&over, "over", 0, "look twice, `duration` apart, for how much of its time each slice used")
	return command
}

// maxBetween is what a scrape may wait.
const maxBetween = 8 * time.Second

// metrics looks at the node, twice where utilisation is asked for. Where the configuration is not believed it says so, with the error,
// and goes by the last good copy. Without one that is all that it says: an old file, or no answer, would look like a node at rest.
func (o *options) metrics(steps bool, over time.Duration) (*metrics.Node, error) {
	held, err := o.believed()
	if err != nil {
		return &metrics.Node{Version: version.Number, Sources: map[string]bool{fromConfig: false}}, err
	}
	cfg, err := o.ofNode(held)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	l := looker{cfg: cfg, now: start, steps: steps}
	status, err := l.at(o.node)
	var duty map[sliceName]float64
	if err == nil && over > 0 {
		first := status
		time.Sleep(time.Until(start.Add(over)))
		l = looker{cfg: cfg, now: time.Now(), steps: steps}
		status, err = l.at(o.node)
		duty = dutyBetween(first, status, l.now.Sub(start))
	}
	if err != nil && status.unreadable == nil {
		return nil, err
	}
	node := metricsOf(cfg, status, duty)
	node.Sources[fromConfig] = held.Standing == config.AsWritten
	return &node, asConfig(held.Err())
}
