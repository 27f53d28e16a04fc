// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/metrics"
)

// compat are names that other exporters gave to a job's use of a GPU.
type compat struct{ jobstats, computeCanada bool }

func (c compat) any() bool { return c.jobstats || c.computeCanada }

// Names of the exporters.
const (
	jobstats      = "jobstats"
	computeCanada = "computecanada"
)

// parseCompat reads a list such as "jobstats,computecanada".
func parseCompat(names []string) (c compat, err error) {
	for _, name := range names {
		switch strings.TrimSpace(name) {
		case jobstats:
			c.jobstats = true
		case computeCanada:
			c.computeCanada = true
		default:
			return c, fmt.Errorf("--compat=%s: takes %s, %s, or both with a comma", name, jobstats, computeCanada)
		}
	}
	return c, nil
}

// Series with the names of other exporters, with the slice's figures in place of the GPU's: the slice's limit is the whole
// memory, and the time that it is entitled to is 100. A job at its cap of 30 % is not idle, and job_defense_shield, which
// cancels idle jobs by these series, leaves it alone.
var (
	// https://github.com/plazonic/nvidia_gpu_prometheus_exporter, which jobstats and its Grafana board read.
	ofJobstats    = []string{"ordinal", "minor_number", "uuid", "name", "jobid", "userid"}
	jobstatsTotal = named(gauge, "nvidia_gpu_memory_total_bytes", "Memory that the job's slice of the GPU may use.", ofJobstats...)
	jobstatsUsed  = named(gauge, "nvidia_gpu_memory_used_bytes", "Memory that the job's slice of the GPU uses.", ofJobstats...)
	jobstatsDuty  = named(gauge, "nvidia_gpu_duty_cycle", "GPU time that the job has used, in percent of what its slice is entitled to.", ofJobstats...)

	// https://github.com/guilbaults/slurm-job-exporter, which TrailblazingTurtle reads.
	ofComputeCanada    = []string{"user", "account", "slurmjobid", "gpu", "gpu_type"}
	computeCanadaTotal = named(gauge, "slurm_job_memory_total_gpu", "Memory that the job's slice of the GPU may use, in bytes.", ofComputeCanada...)
	computeCanadaUsed  = named(gauge, "slurm_job_memory_usage_gpu", "Memory that the job's slice of the GPU uses, in bytes.", ofComputeCanada...)
	computeCanadaDuty  = named(gauge, "slurm_job_utilization_gpu", "GPU time that the job has used, in percent of what its slice is entitled to.", ofComputeCanada...)
)

func (c collector) jobstats(say sayer, s metrics.Slice) {
	user := ""
	if c.node.Users {
		user = strconv.FormatUint(uint64(s.UID), 10)
	}
	labels := []string{index(s.GPU), strconv.Itoa(int(s.GPU.Minor)), string(s.GPU.UUID), s.GPU.Name, job(s.Job), user}
	sayCompat(say, s, jobstatsTotal, jobstatsUsed, jobstatsDuty, labels)
}

func (c collector) computeCanada(say sayer, s metrics.Slice) {
	sayCompat(say, s, computeCanadaTotal, computeCanadaUsed, computeCanadaDuty, []string{s.User, s.Account, job(s.Job), index(s.GPU), s.GPU.Name})
}

func sayCompat(say sayer, s metrics.Slice, total, used, duty family, labels []string) {
	say(total, float64(s.LimitBytes), labels...)
	if s.Use != nil {
		say(used, float64(s.Use.UsedBytes), labels...)
	}
	if s.DutyRatio != nil {
		say(duty, 100**s.DutyRatio, labels...)
	}
}
