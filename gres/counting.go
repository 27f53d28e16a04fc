// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
)

// counting is how Slurm is to count the GPUs: by shards, of which it knows the GPU, or by node.
type counting struct {
	shards bool
	why    string // a comment for the lines; "": config.yaml says it already
}

func (c counting) comment() string {
	if c.why == "" {
		return ""
	}
	return "# " + c.why + "\n"
}

// countingFlags are --shards and --counts, of which at most one is given.
type countingFlags struct{ shards, counts bool }

var errNotBeside = errors.New("--shards: config.yaml has whole_gpus or slurm_gpus, and Slurm picks no GPU beside them: take them out first")

// counting decides by the flags, then by config.yaml, then by the Slurm of this node. slurmctld, which does the counting, is never older.
// ask says which that is; "": it is not known.
func (f countingFlags) counting(ask func() string, cfg config.Config) (counting, error) {
	split := cfg.WholeGPUs || len(cfg.SlurmGPUs) > 0
	said := ""
	if cfg.ShardsSaid {
		said = fmt.Sprintf("config.yaml says shards: %t, ", cfg.Shards)
	}
	switch {
	case f.shards && f.counts:
		return counting{}, fmt.Errorf("--shards and --counts: give one of the two%w", errUsage)
	case f.shards && split:
		return counting{}, errNotBeside
	case f.counts && cfg.Shards:
		return counting{false, "--counts: " + said + "and vgpu-prolog refuses every slice until it says shards: false."}, nil
	case f.counts, !f.shards && (cfg.ShardsSaid || split):
		return counting{shards: cfg.Shards}, nil
	}
	version := ask()
	switch {
	case f.shards && version != "" && !sitecheck.CountsShards(version):
		return counting{true, "--shards: " + tooOld(version) + "."}, nil
	case f.shards && !cfg.Shards:
		return counting{true, "--shards: " + said + "and vgpu-prolog refuses every slice until it says shards: true."}, nil
	case f.shards:
		return counting{shards: true}, nil
	case version == "":
		return counting{false, "Counts, which every Slurm has: it is not known which one runs here. From " + sitecheck.FirstWithShards + " on take vgpu-gres --shards."}, nil
	case !sitecheck.CountsShards(version):
		return counting{false, "Counts: " + tooOld(version) + "."}, nil
	}
	return counting{true, "Slurm " + version + " picks the GPU of each slice, by shards. Write shards: true into config.yaml on the node as well, or vgpu-prolog\n" +
		"# refuses every slice. A site with counts that keeps them writes shards: false, or takes vgpu-gres --counts."}, nil
}

func tooOld(version string) string {
	return "Slurm " + version + " can give a GPU and shards of it to two jobs at once; " + sitecheck.FirstWithShards + " is the first that does not"
}

// slurmVersion is that of Slurm's commands here, or else the one that the plugin was built for; "" if neither says it.
func slurmVersion(ctx context.Context, cfg config.Config) string {
	if version := sitecheck.RunningVersion(ctx, cfg.Slurm.Scontrol, sitecheck.DefaultSlurmConf()); version != "" {
		return version
	}
	return sitecheck.BuiltFor(sitecheck.PluginPath())
}
