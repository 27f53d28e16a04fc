// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// JobsOn asks which jobs have a node now, and since when. One whose run has just begun may not have seen its prolog.
func (c Client) JobsOn(ctx context.Context, node string) (map[uint32]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	text, err := run(ctx, c.Squeue, "--noheader", "--all", "--states=running,suspended", "--nodelist="+node, "--format=%A|%S")
	if err != nil {
		return nil, fmt.Errorf("ask for the jobs of node %s: %w", node, err)
	}
	jobs := make(map[uint32]time.Time)
	for line := range strings.Lines(text) {
		id, since, parted := strings.Cut(strings.TrimSpace(line), "|")
		job, err := strconv.ParseUint(id, 10, 32)
		seconds, timeErr := strconv.ParseInt(since, 10, 64)
		if err != nil || timeErr != nil || !parted {
			return nil, fmt.Errorf("ask for the jobs of node %s: squeue printed %q", node, line)
		}
		jobs[uint32(job)] = time.Unix(seconds, 0)
	}
	return jobs, nil
}
