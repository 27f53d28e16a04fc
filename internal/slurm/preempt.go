// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
)

// Preemption is what Slurm's own rules let one job do to another.
type Preemption struct {
	Name    string // of the other, to scontrol
	Requeue bool   // it goes back into the queue, if it may; else it is cancelled
}

// preemptRules are those of slurm.conf.
type preemptRules struct {
	kind   string // partition_prio or qos
	mode   string
	exempt time.Duration // for so long nobody is preempted
}

var (
	preemptKind   = pattern.Late(`(?m)^PreemptType\s*= preempt/(partition_prio|qos)$`)
	preemptMode   = pattern.Late(`(?m)^PreemptMode\s*= (\S+)$`)
	preemptExempt = pattern.Late(`(?m)^PreemptExemptTime\s*= (\S+)$`)
	singleName    = pattern.Late(`^[0-9]{1,10}(?:_[0-9]{1,10})?$`)
	safeName      = pattern.Late(`^[\w.@+-]+$`)
)

// ranked is a running job and what its rank depends on.
type ranked struct {
	name, partition, qos string
	since                time.Time
}

// Preemptible says which of some jobs the rules of slurm.conf let this one preempt, and how. A mode that only suspends jobs frees no
// memory, and is left out; so are components of heterogeneous jobs.
func (c Client) Preemptible(ctx context.Context, job uint32, others []uint32) (map[uint32]Preemption, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	rules, err := c.preemptRules(ctx)
	if err != nil || rules.kind == "" || len(others) == 0 {
		return nil, err
	}
	jobs, err := c.ranked(ctx, append(slices.Clone(others), job))
	if err != nil {
		return nil, err
	}
	me, ok := jobs[job]
	if !ok {
		return nil, fmt.Errorf("ask whom job %d preempts: %w", job, ErrUnknownJob)
	}
	delete(jobs, job)
	modeOf := c.byPartition
	if rules.kind == "qos" {
		modeOf = c.byQOS
	}
	found := make(map[uint32]Preemption)
	for id, other := range jobs {
		if !singleName().MatchString(other.name) || time.Since(other.since) < rules.exempt {
			continue
		}
		mode, err := modeOf(ctx, me, other, rules.mode)
		if err != nil {
			return nil, err
		}
		mode = strings.TrimPrefix(mode, "GANG,")
		if mode == "REQUEUE" || mode == "CANCEL" {
			found[id] = Preemption{Name: other.name, Requeue: mode == "REQUEUE"}
		}
	}
	return found, nil
}

func (c Client) preemptRules(ctx context.Context) (rules preemptRules, err error) {
	text, err := run(ctx, c.Scontrol, "show", "config")
	if err != nil {
		return rules, fmt.Errorf("ask how jobs are preempted: %w", err)
	}
	kind, mode := preemptKind().FindStringSubmatch(text), preemptMode().FindStringSubmatch(text)
	if kind == nil || mode == nil {
		return rules, nil
	}
	rules.kind, rules.mode = kind[1], mode[1]
	if exempt := preemptExempt().FindStringSubmatch(text); exempt != nil {
		rules.exempt = limit(exempt[1])
	}
	return rules, nil
}

// ranked asks for all of them at once. Only those that run are there.
func (c Client) ranked(ctx context.Context, ids []uint32) (map[uint32]ranked, error) {
	found, err := c.squeue(ctx, ids, strings.Join(holdsNodes[:3], ","), "%i|%P|%q|%S")
	if err != nil {
		return nil, fmt.Errorf("ask how jobs are ranked: %w", err)
	}
	jobs := make(map[uint32]ranked)
	for id, cells := range found {
		if seconds, err := strconv.ParseInt(cells[3], 10, 64); err == nil {
			jobs[id] = ranked{name: cells[0], partition: cells[1], qos: cells[2], since: time.Unix(seconds, 0)}
		}
	}
	return jobs, nil
}

// byPartition: a partition of a higher tier preempts, as the lower one's mode says.
func (c Client) byPartition(ctx context.Context, me, other ranked, _ string) (string, error) {
	var tiers [2]int
	var mode string
	for i, name := range []string{me.partition, other.partition} {
		if !safeName().MatchString(name) {
			return "", nil
		}
		text, err := run(ctx, c.Scontrol, "-o", "show", "partition", name)
		if err != nil {
			return "", fmt.Errorf("ask for partition %s: %w", name, err)
		}
		tier := first(text, "PriorityTier")
		if tiers[i], err = strconv.Atoi(tier); err != nil {
			return "", fmt.Errorf("ask for partition %s: its tier is %q", name, tier)
		}
		mode = first(text, "PreemptMode")
	}
	if tiers[0] <= tiers[1] {
		return "", nil
	}
	return mode, nil
}

// byQOS: a QOS names those that it preempts, and each says how it is.
func (c Client) byQOS(ctx context.Context, me, other ranked, clusterMode string) (string, error) {
	text, err := run(ctx, filepath.Join(filepath.Dir(c.Scontrol), "sacctmgr"), "--noheader", "--parsable2", "show", "qos", "format=Name,Preempt,PreemptMode,PreemptExemptTime")
	if err != nil {
		return "", fmt.Errorf("ask for QOS: %w", err)
	}
	preempts, mode := false, ""
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 4 {
			return "", fmt.Errorf("ask for QOS: sacctmgr printed %q", line)
		}
		if cells[0] == me.qos {
			preempts = slices.Contains(strings.Split(cells[1], ","), other.qos)
		}
		if cells[0] == other.qos && time.Since(other.since) >= limit(cells[3]) {
			mode = strings.ToUpper(cells[2])
		}
	}
	if !preempts {
		return "", nil
	}
	if mode == "CLUSTER" {
		mode = clusterMode
	}
	return mode, nil
}

// Preempt ends a job as Slurm would: what cannot be requeued is cancelled.
func (c Client) Preempt(ctx context.Context, p Preemption) error {
	if !singleName().MatchString(p.Name) {
		return fmt.Errorf("preempt job %q: that names no single job", p.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	if p.Requeue {
		if _, err := run(ctx, c.Scontrol, "requeue", "Incomplete", p.Name); err == nil || unreachable(err) {
			return err
		}
	}
	if _, err := run(ctx, filepath.Join(filepath.Dir(c.Scontrol), "scancel"), p.Name); err != nil {
		return fmt.Errorf("preempt job %s: %w", p.Name, err)
	}
	return nil
}
