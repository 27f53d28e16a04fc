// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package timeline is what a slice used over time: points that a sampler takes while the job runs.
package timeline

// MaxRecorded is how many points of a slice a usage record has at most.
const MaxRecorded = 240

// Point is an interval of a slice's life.
type Point struct {
	AtUnixS int64 `json:"t"`       // when the interval ended, in seconds since 1970
	UsedMiB int64 `json:"mem_mib"` // device memory; the most that was seen, where points were folded
	BusyMs  int64 `json:"busy_ms"` // GPU time used since the point before
}
