// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// askedFields are what a job asks for, each followed by a bar. Slurm writes them anew from what it
// understood of a request, so that nothing of a user's is printed as he wrote it.
const askedFields = "JobID:|,tres-per-node:|,tres-per-job:|,tres-per-socket:|,tres-per-task:|"

// asked finds out what a job asked for on each node. scontrol prints it among texts of users, and
// not at all if it was nothing, so that squeue is asked, for nothing else.
// gpus says that it asked for whole GPUs, beside which job_submit has Slurm count what they have, in the same way.
func (c Client) asked(ctx context.Context, id uint32) (per *request.Entitlement, gpus bool, err error) {
	plain := strconv.FormatUint(uint64(id), 10)
	text, err := run(ctx, c.Squeue, "--noheader", "--all", "--states=all", "--jobs="+plain, "--Format="+askedFields)
	if err != nil {
		return nil, false, err
	}
	return parseAsked(text, plain)
}

// parseAsked picks the job's line. An array's tasks and the components of a heterogeneous job may be
// printed beside it.
func parseAsked(text, id string) (per *request.Entitlement, gpus bool, err error) {
	var found []string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimRight(line, "\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != strings.Count(askedFields, "|")+1 || found != nil && cells[0] == id {
			return nil, false, fmt.Errorf("%w: squeue printed %q", ErrAmbiguous, line)
		}
		if cells[0] == id {
			found = cells
		}
	}
	if found == nil {
		return nil, false, ErrUnknownJob
	}
	for _, list := range found[1:] {
		whole, err := request.ParseGPUs(list)
		if err != nil {
			return nil, false, err
		}
		gpus = gpus || whole.Count > 0
	}
	for _, other := range found[2:] {
		if asked, err := request.ParseGRES(other); err != nil || !asked.IsZero() && !gpus {
			return nil, false, fmt.Errorf("%w: %s is not counted by node", ErrContradiction, other)
		}
	}
	asked, err := request.ParseGRES(found[1])
	return &asked, gpus, err
}
