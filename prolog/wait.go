// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/waiting"
	"github.com/slurm-vgpu/slurm-vgpu/internal/wake"
)

// Where a job waits for a node that does not tell it of room, because its epilog or the node died, it comes back by
// itself when the jobs in its way must have ended, but at the latest after some hours.
const (
	shortestWait = time.Minute
	longestWait  = waiting.LongestWait
	// unlistedWait is the least for one that is not listed: it comes without having been told, and there are many like it.
	unlistedWait = 10 * time.Minute
	// soon is more than the nodes need to let go of a requeued job: Slurm takes a start that has passed by then for none.
	soon = 5 * time.Second
)

// wait is how a job waits that this node has no room for.
type wait struct {
	job       waiting.Job
	node      string // the job waits for this one
	elsewhere bool   // … and may run on another meanwhile
	never     bool   // … or must
	unlisted  bool   // too many wait, it is not told of room
	victims   []slurm.Preemption
}

// inTurn places the job behind those that have waited longer. Who was here before it comes first.
func (p *prolog) inTurn(tx *state.Tx, want place.Want, inventory device.Inventory) ([]device.Slice, *place.Refusal) {
	if want.Only != nil { // it is Slurm that decides who goes first
		return place.Place(inventory, place.SlicesOf(tx.Held()), want, p.rules())
	}
	jobs := p.waiters()
	turns := place.Queue(inventory, tx.Held(), append(jobs.Before(p.job.id, time.Now()), place.Waiter{Job: p.job.id, Want: want}), p.rules())
	turn := turns[len(turns)-1]
	if _, waited := jobs.Find(p.job.id); turn.Why == nil && waited {
		if err := waiting.Write(p.cfg.Spool(), jobs.Without(p.job.id)); err != nil {
			p.log.Error("the job stays among those that wait", "reason", err)
		}
	}
	p.expected = timeOf(turn.At)
	return turn.Slices, turn.Why
}

func (p *prolog) waiters() waiting.Jobs {
	jobs, err := waiting.Read(p.cfg.Spool())
	if err != nil {
		p.log.Error("nobody is known to wait", "reason", err)
	}
	return jobs
}

// forgetGoneWaiters drops waiting jobs that are gone, so that none of them keeps others out. It says whether there were any.
func (p *prolog) forgetGoneWaiters(ctx context.Context) bool {
	fewer, err := p.waker().Forget(ctx, p.job.id)
	if err != nil {
		p.log.Warn("jobs that do not wait any more may keep others out", "reason", err)
	}
	return fewer
}

func (p *prolog) waker() wake.Waker {
	return wake.Waker{Config: p.cfg, Node: p.node, Store: p.store, Controller: p.controller, Log: p.log}
}

// noRoom decides about a job that fits no GPU now. A batch job waits for one; another one is told what would fit.
func (p *prolog) noRoom(ctx context.Context, g grant.Grant, want place.Want, inventory device.Inventory, refusal *place.Refusal, told slurm.Job) error {
	p.because(refusal.Kind)
	if !p.mayRequeue(told) {
		reason := refusal.Reason
		if !told.Batch && refusal.Kind != place.Never {
			reason += "; a batch job would wait, --exclude=" + p.node + " tries other nodes"
		}
		return p.refuse(ctx, g, reason, nil)
	}
	if want.Only != nil {
		// Slurm's counts and the node's do not agree, for a moment as a rule: the job comes back some times.
		return p.refuse(ctx, g, refusal.Reason, &told)
	}
	elsewhere, err := p.controller.Elsewhere(ctx, told, p.node)
	if err != nil {
		p.log.Warn("the job waits for this node, without trying others", "reason", err)
	}
	never := refusal.Kind == place.Never
	if never && !elsewhere {
		return p.refuse(ctx, g, refusal.Reason, nil)
	}
	name, err := told.Name()
	if err != nil {
		p.log.Error("the job fails instead of going back into the queue", "reason", err)
		return p.refuse(ctx, g, refusal.Reason, nil)
	}
	p.wait = &wait{node: p.node, elsewhere: elsewhere, never: never, job: waiting.Job{Job: g.Job, Name: name, Restart: g.Restart, UID: g.UID,
		Want: want, Limit: told.Limit, Since: g.Since, Last: g.Since, Reason: refusal.Reason, Excluded: told.Excluded, Barred: elsewhere}}
	if refusal.Kind == place.Fragmented && !elsewhere {
		p.wait.victims = p.victims(ctx, want, inventory)
	}
	return p.refuse(ctx, g, refusal.Reason, &told)
}

// listWaiter puts the job among those that wait for this node. The caller holds the lock.
func (p *prolog) listWaiter() {
	if p.wait == nil || p.wait.never {
		return
	}
	jobs := p.waiters().Put(p.wait.job)
	if _, listed := jobs.Find(p.job.id); !listed {
		p.wait.unlisted = true
		p.log.Warn("the job waits without a claim, and is not told of room", "uid", p.wait.job.UID,
			"reason", "too many jobs wait already", "most_of_user", waiting.MostOfUser, "most", waiting.Most)
	}
	if err := waiting.Write(p.cfg.Spool(), jobs); err != nil {
		p.log.Error("the job waits without a claim, and is not told of room", "reason", err)
	}
}

// unlistWaiter takes it off again: it was not put back.
func (p *prolog) unlistWaiter(ctx context.Context) error {
	if p.wait == nil {
		return nil
	}
	tx, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	if err := waiting.Write(p.cfg.Spool(), p.waiters().Without(p.job.id)); err != nil {
		p.log.Error("the job stays among those that wait until it has ended", "reason", err)
	}
	return tx.Commit()
}

// letWait tells the controller, after the job was requeued, when and where it may start again. Without that it comes
// back after Slurm's own delay.
func (p *prolog) letWait(ctx context.Context, told slurm.Job) {
	if p.wait == nil {
		return
	}
	w := slurm.Wait{For: soon, Reason: fmt.Sprintf("%s: %s", p.node, p.wait.job.Reason)}
	if p.wait.elsewhere {
		w.Elsewhere, w.Excluded = true, slurm.With(told.Excluded, p.node)
	} else {
		w.For = longestWait
		if !p.expected.IsZero() {
			w.For = min(max(time.Until(p.expected), shortestWait), longestWait)
		}
		if p.wait.unlisted {
			w.For = max(w.For, unlistedWait)
		}
	}
	if err := p.controller.Wait(ctx, told, w); err != nil {
		p.log.Error("the job comes back after Slurm's own delay", "reason", err)
	}
	if err := p.waker().TellAgain(ctx, told.ID); err != nil {
		p.log.Error("the job may not know of room before the next epilog", "reason", err)
	}
	p.preempt(ctx)
}

// timeOf is a time in seconds; 0 is none.
func timeOf(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
