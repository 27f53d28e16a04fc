// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package drained drains a node that would fail job after job, once, and resumes it when the reason is gone. A node that
// an administrator has drained, or given another reason, stays as it is.
package drained

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Cause is why a node takes itself out.
type Cause string

const (
	GPUsUnknown   Cause = "vgpu: the node's GPUs are not known"
	ConfigUnknown Cause = "vgpu: config.yaml cannot be used"
	// MovedHalfway is one of the two ways in which slices are counted, while slices of the other are there.
	MovedHalfway Cause = "vgpu: slices are counted in two ways"
	// ShardsUnsaid: Slurm picks GPUs, and the prolog would pick others.
	ShardsUnsaid Cause = "vgpu: config.yaml does not say shards: true"
	// GPUFailed: Slurm goes on giving it out by itself, or no other GPU takes slices.
	GPUFailed Cause = "vgpu: a GPU has failed"
)

// maxMark is more than a mark has.
const maxMark = 4096

// mark says what was done, across a boot too.
type mark struct {
	Node   string `json:"node"`
	Cause  Cause  `json:"cause"`
	Reason string `json:"reason"`
}

// Node drains a node and remembers that. It says false where the node drained already.
func Node(ctx context.Context, controller slurm.Client, spool rundir.Spool, node string, cause Cause, why string) (bool, error) {
	m := mark{node, cause, slurm.DrainReason(string(cause) + ": " + why)}
	done, known, err := controller.Drain(ctx, node, m.Reason)
	if err != nil || !done && !known {
		return false, err
	}
	if _, err := os.Lstat(spool.Drained()); !done && err == nil {
		return false, nil
	} // else a run was killed before it could remember
	data, err := json.Marshal(m)
	if err == nil {
		err = os.MkdirAll(string(spool), 0o755)
	}
	if err == nil {
		err = trusted.WriteFile(spool.Drained(), append(data, '\n'), 0o644)
	}
	if err != nil { // it is drained, and an administrator has to resume it
		return done, fmt.Errorf("remember that %s was drained: %w", node, err)
	}
	return done, nil
}

// Resume gives a node back that Node took out for a cause that is gone, if its reason is still the one from then, and returns that.
// It costs a look at a file where nothing was drained.
func Resume(ctx context.Context, controller slurm.Client, spool rundir.Spool, node string, gone ...Cause) (reason string, err error) {
	m, err := read(spool)
	if err != nil || !slices.Contains(gone, m.Cause) || m.Node != node {
		return "", err
	}
	done, err := controller.Resume(ctx, node, m.Reason)
	if err != nil {
		return "", err
	}
	if done {
		reason = m.Reason
	}
	if err := os.Remove(spool.Drained()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return reason, fmt.Errorf("forget that %s was drained: %w", node, err)
	}
	return reason, nil
}

func read(spool rundir.Spool) (m mark, err error) {
	data, err := trusted.ReadFile(spool.Drained(), maxMark)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return mark{}, nil
	case err != nil:
		return mark{}, fmt.Errorf("read why the node was drained: %w", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return mark{}, fmt.Errorf("read %s: %w", spool.Drained(), err)
	}
	return m, nil
}
