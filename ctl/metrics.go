// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/metrics"
	"github.com/slurm-vgpu/slurm-vgpu/internal/stored"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

// metricsFlags is the command line of `vgpuctl metrics`.
type metricsFlags struct {
	textfile string
	serve    bool
	steps    bool
	compat   []string
	over     time.Duration
}

const metricsText = `Print what is known of this node's GPUs and slices in Prometheus' text format: for node_exporter's textfile
folder with --textfile, or with --serve as the answer to one HTTP request on the connection that is
standard input, which is how slurm-vgpu-metrics.socket starts it.

Root sees all slices, others their own. What cannot be read or was not measured is left out and is never
0; slurm_vgpu_source_readable says what could be read. metrics_users: false in config.yaml leaves out
who the jobs are of.

--compat adds series by the names of other exporters, of each job's slice in place of its GPU: jobstats
(nvidia_gpu_*) and computecanada (slurm_job_*_gpu). Utilisation among them is the GPU time used, in
percent of what the slice is entitled to, between two looks that are --over apart.

docs/metrics.md has every name, its labels and its unit.`

func metricsCommand(o *options) *cobra.Command {
	var f metricsFlags
	command := &cobra.Command{
		Use:   "metrics [--textfile FILE | --serve] [--steps] [--compat LIST [--over DURATION]]",
		Short: "Print metrics of this node's GPUs and slices for Prometheus",
		Long:  metricsText,
		Example: "  vgpuctl metrics\n  vgpuctl metrics --textfile /var/lib/prometheus/node-exporter/slurm_vgpu.prom\n" +
			"  vgpuctl metrics --compat=jobstats,computecanada | grep duty_cycle",
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if f.over <= 0 || f.over > maxBetween {
				return exitError{exitUsage, fmt.Errorf("--over %s: more than 0s, at most %s", f.over, maxBetween)}
			}
			if f.serve && f.textfile != "" {
				return exitError{exitUsage, fmt.Errorf("--serve and --textfile exclude each other")}
			}
			compat, err := metrics.ParseCompat(f.compat)
			if err != nil {
				return exitError{exitUsage, err}
			}
			text := func() ([]byte, error) { return o.metrics(f, compat) }
			if f.serve {
				return serveMetrics(func() ([]byte, error) {
					said, err := text()
					if said != nil {
						return said, nil // it says that the configuration is not believed
					}
					return nil, err
				})
			}
			said, problem := text()
			if said == nil {
				return problem
			}
			if f.textfile != "" {
				for _, left := range trusted.Temporaries(filepath.Dir(f.textfile), func(made time.Time) bool { return stored.Age(made) > time.Minute }, func(name string) bool { return name == filepath.Base(f.textfile) }) {
					_ = os.Remove(left) // by a run that was killed
				}
				if err := trusted.WriteFile(f.textfile, said, 0o644); err != nil {
					return fmt.Errorf("write metrics to %s: %w", f.textfile, err)
				}
				return problem
			}
			_, err = command.OutOrStdout().Write(said)
			return errors.Join(problem, err)
		},
	}
	command.Flags().StringVar(&f.textfile, "textfile", "", "replace this `file` in one step instead of printing")
	command.Flags().BoolVar(&f.serve, "serve", false, "answer one HTTP request on standard input, which is a connection")
	command.Flags().BoolVar(&f.steps, "steps", false, "series for each running step as well (label step)")
	command.Flags().StringSliceVar(&f.compat, "compat", nil, "names of other exporters as well: a `list` of jobstats, computecanada")
	command.Flags().DurationVar(&f.over, "over", time.Second, "with --compat: how far apart the two looks for utilisation are")
	_ = command.MarkFlagFilename("textfile", "prom") // the flag is there
	_ = command.RegisterFlagCompletionFunc("compat", cobra.FixedCompletions([]string{metrics.Jobstats, metrics.ComputeCanada}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

// maxBetween is what a scrape may wait.
const maxBetween = 8 * time.Second

// serveMetrics answers on the connection that systemd gave (Accept=yes, StandardInput=socket).
func serveMetrics(text func() ([]byte, error)) error {
	conn, err := net.FileConn(os.Stdin)
	if err != nil {
		return exitError{exitUsage, fmt.Errorf("--serve: standard input is no connection; slurm-vgpu-metrics.socket gives one: %w", err)}
	}
	return metrics.Serve(conn, text)
}

// metrics looks at the node, twice where utilisation is asked for. Where the configuration is not believed it says so, with the error,
// and goes by the last good copy. Without one that is all that it says: an old file, or no answer, would look like a node at rest.
func (o *options) metrics(f metricsFlags, compat metrics.Compat) ([]byte, error) {
	held, err := o.believed()
	if err != nil {
		return metrics.Text(metrics.Node{Version: version.Number, Sources: map[string]bool{fromConfig: false}}, metrics.Options{}), err
	}
	cfg, err := o.ofNode(held)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	l := looker{cfg: cfg, now: start, steps: f.steps}
	status, err := l.at(o.node)
	var duty map[sliceName]float64
	if err == nil && compat.Any() {
		first := status
		time.Sleep(time.Until(start.Add(f.over)))
		l = looker{cfg: cfg, now: time.Now(), steps: f.steps}
		status, err = l.at(o.node)
		duty = dutyBetween(first, status, l.now.Sub(start))
	}
	if err != nil && status.unreadable == nil {
		return nil, err
	}
	node := metricsOf(cfg, status, duty)
	node.Sources[fromConfig] = held.Standing == config.AsWritten
	return metrics.Text(node, metrics.Options{Users: cfg.MetricsUsers, Steps: f.steps, Compat: compat}), asConfig(held.Err())
}
