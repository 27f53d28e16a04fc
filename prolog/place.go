// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/drained"
	"github.com/slurm-vgpu/slurm-vgpu/internal/driver"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/release"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/tally"
)

// doubtTime bounds how long the controller is asked about other jobs before this one may start.
const doubtTime = 10 * time.Second

// place grants the job its slices, or refuses it.
func (p *prolog) place(ctx context.Context, g grant.Grant, told slurm.Job) error {
	g, want, err := p.wanted(g, told)
	if err != nil {
		return p.refuse(ctx, g, err.Error(), nil)
	}
	if want.Slices > ledger.MaxDevices {
		return p.refuse(ctx, g, fmt.Sprintf("%d slices on one node: at most %d are possible", want.Slices, ledger.MaxDevices), &told)
	}
	if err := p.prepareIsolation(); err != nil {
		return p.refuse(ctx, g, "the node cannot isolate jobs: "+err.Error(), nil)
	}
	if !g.Whole {
		if g, err = p.keep(ctx, g); err != nil {
			return p.refuse(ctx, g, "the node cannot start jobs: "+err.Error(), &told)
		}
	}
	if p.files != nil {
		return p.refuse(ctx, g, "the GPUs' device files cannot be kept closed: "+p.files.Error(), &told)
	}
	inventory, err := p.inventory(ctx)
	if err != nil {
		return p.takeOut(ctx, g, drained.GPUsUnknown, err, &told)
	}
	if want.Only, err = p.minorsPicked(inventory); err != nil {
		return p.refuse(ctx, g, err.Error(), nil)
	}
	if !told.Ends.IsZero() {
		want.Ends = told.Ends.Unix()
	}
	if p.cfg.Isolation == config.IsolationWall && !g.Whole {
		if g.WallCommand, err = p.wallCommand(inventory); err != nil {
			p.log.Error("isolation is wall, and the driver keeps no limits here: jobs with slices are refused", "reason", err)
			return p.refuse(ctx, g, "the node cannot isolate jobs: "+err.Error(), &told)
		}
	}
	if g.Whole {
		want.GPU = knownTypes(want.GPU, inventory)
	} else if g.IsStrict() {
		g.Guards = p.guards(g.Library)
	}
	refusal, err := p.tryPlace(ctx, g, want, inventory)
	if moved, is := errors.AsType[halfway](err); is {
		return p.takeOut(ctx, g, drained.MovedHalfway, moved, &told)
	}
	if err == nil && refusal == nil && !g.Whole {
		p.awaitVgpud()
	}
	if err != nil || refusal == nil {
		return err
	}
	return p.noRoom(ctx, g, want, inventory, refusal, told)
}

// guards are those over what programs of this node load as the driver at this moment.
func (p *prolog) guards(library string) []grant.Guard {
	libraries, err := driver.Find(driver.Cache)
	if err != nil { // a file that is not root's alone costs the node nothing but its guard
		p.log.Warn("the driver's libraries are not all guarded", "reason", err)
	} else if len(libraries) == 0 { // ldconfig has not run since the driver came
		p.log.Warn("the driver's libraries are not guarded", "reason", "the dynamic linker's cache has none: run ldconfig")
	}
	return grant.Guards(library, libraries, p.cfg.OtherAPIs == config.OtherOpen)
}

// wanted is what the job is to hold here, and its grant with what it asked for.
func (p *prolog) wanted(g grant.Grant, told slurm.Job) (grant.Grant, place.Want, error) {
	if g.Whole {
		return g, place.WantOfWhole(p.whole), nil
	}
	asked, err := p.asked(told)
	if err != nil {
		return g, place.Want{}, err
	}
	g.Request = asked.Encode()
	if asked.Policy != request.PolicyDefault {
		g.Policy = asked.Policy
	}
	want := place.WantOf(asked, g.Entitlement)
	if want.Priority == device.PriorityLatency {
		if err := p.mayGoFirst(want, told); err != nil {
			return g, place.Want{}, fmt.Errorf("--vgpu-priority=latency: %w", err)
		}
	}
	return g, want, nil
}

// asked is the request with its defaults. The user may have written both by hand: a request that
// is none is refused, defaults that are none are left out.
func (p *prolog) asked(told slurm.Job) (request.Request, error) {
	asked, err := request.Decode(p.job.request)
	if err != nil {
		return request.Request{}, err
	}
	defaults, err := request.Decode(p.job.defaults)
	if err != nil {
		p.log.Warn("the job's defaults are left out", "reason", err)
		defaults = request.Request{}
	}
	if told.MemTyped {
		defaults.Mem = request.Mem{}
	}
	return request.Merge(asked, defaults), nil
}

// tryPlace places under the lock. If there is no room it asks the controller about the jobs that
// are in doubt by then, and tries once more: the state may just have been made again from grants.
func (p *prolog) tryPlace(ctx context.Context, g grant.Grant, want place.Want, inventory device.Inventory) (*place.Refusal, error) {
	snapshot, err := p.store.Read()
	if err != nil {
		p.log.Debug("the state is read again under the lock", "reason", err)
	}
	gone := p.gone(ctx, snapshot.Slices)
	for again := false; ; again = true {
		refusal, held, err := p.placeLocked(ctx, g, want, inventory, gone)
		if err != nil || refusal == nil || again {
			return refusal, err
		}
		fewer := p.gpus.Fewer(ctx)
		if gone = p.gone(ctx, held); len(gone) == 0 && !fewer {
			return refusal, nil
		}
	}
}

// gone finds the runs that hold slices but are over: their epilog never came.
func (p *prolog) gone(ctx context.Context, held []state.Slice) map[state.Run]bool {
	live, err := slurm.LiveJobs(p.cfg.Slurm.SlurmdSpoolDir, p.node)
	if err != nil {
		p.log.Warn("live steps are not known, the controller is queried instead", "reason", err)
	}
	ctx, cancel := context.WithTimeout(ctx, doubtTime)
	defer cancel()
	gone, err := state.Over(ctx, state.Doubtful(held, live, time.Now()), p.controller)
	if err != nil {
		p.log.Warn("the controller does not say whether all other jobs live, they keep their slices", "reason", err)
	}
	maps.DeleteFunc(gone, func(_ state.Run, over bool) bool { return !over })
	return gone
}

// placeLocked makes the job's folder and commits its slices, or says why there is no room, and
// then what is held.
func (p *prolog) placeLocked(ctx context.Context, g grant.Grant, want place.Want, inventory device.Inventory, gone map[state.Run]bool) (*place.Refusal, []state.Slice, error) {
	tx, err := p.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer tx.End()
	if before, ok := p.previous(g); ok && before.Refusal != "" {
		return &place.Refusal{Kind: place.Fragmented, Reason: before.Refusal}, nil, tx.Commit() // an earlier prolog of this run decided
	}
	mine := state.Run{Job: p.job.id, Restart: p.job.restart}
	// A run of the same job with another restart count is over, or this one would not have begun.
	another := p.leftover(g, tx.Slices())
	over := func(run state.Run) bool { return gone[run] || run.Job == mine.Job && (run != mine || another) }
	result, err := release.Runs(p.cfg, tx, []uint32{p.job.id}, over, p.log)
	if err != nil {
		return nil, nil, err
	}
	p.recorded = p.recorded || result.Recorded
	if len(result.Freed) > 0 {
		p.log.Warn("slices of jobs that are gone were freed", "slices", len(result.Freed), "jobs", jobsOf(result.Freed))
	}
	var own []state.Slice
	for _, s := range tx.Slices() {
		if s.Run() == mine {
			own = append(own, s)
		}
	}
	if len(own) == 0 { // else an earlier prolog of this run got that far
		if job := p.store.CountedOtherwise(tx.Slices(), p.job.id, p.cfg.Shards); job != 0 {
			return nil, nil, errors.Join(halfway{job, p.cfg.Shards}, tx.Commit())
		}
		placed, refusal := p.gpus.Place(tx, want, inventory)
		if refusal != nil {
			return refusal, tx.Slices(), tx.Commit()
		}
		for _, s := range placed {
			own = append(own, state.Slice{Job: g.Job, Restart: g.Restart, UID: g.UID, Since: state.MillisOf(g.Since),
				Elastic: g.Policy == request.PolicyElastic, Ends: want.Ends, Slice: s})
		}
		tx.Put(g.Job, own)
	}
	g = complete(g, own, inventory)
	if g.Whole {
		g.Numbers = g.Number(p.whole.Numbers)
	}
	if err := p.grant(tx, g); err != nil {
		return nil, nil, err
	}
	p.placed = true
	p.log.Info("slices granted", "restart", g.Restart, "uid", g.UID, "devices", devicesOf(own),
		"mem_mib", own[0].MemMiB, "sm_percent", own[0].SMPercent, "request", g.Request)
	return nil, nil, nil
}

// grant makes the pages first: vgpud looks for them as soon as the state has the slices, and the next commit takes away those of a prolog that
// was killed in between.
func (p *prolog) grant(tx *state.Tx, g grant.Grant) error {
	if err := p.prepareFolder(g); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil { // from here on the job holds its slices
		return err
	}
	crashpoint.At("prolog/committed")
	return p.writeGrant(g)
}

func (p *prolog) begin(ctx context.Context) (*state.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return p.store.Begin(ctx)
}

// releaseOthers frees what earlier runs of this job left, which holds nothing now.
func (p *prolog) releaseOthers(ctx context.Context) error {
	if _, err := os.Lstat(p.cfg.Run().Job(p.job.id)); err != nil {
		return nil
	}
	tx, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	result, err := release.Runs(p.cfg, tx, []uint32{p.job.id}, func(run state.Run) bool { return run.Job == p.job.id }, p.log)
	p.recorded = p.recorded || result.Recorded
	return err
}

// complete derives the rest of a grant from the slices as they stand in the state, so that a
// second prolog makes the same grant.
func complete(g grant.Grant, own []state.Slice, inventory device.Inventory) grant.Grant {
	g.Since, g.Ends = own[0].Since.Time(), own[0].Ends
	held := make(map[device.UUID]bool)
	for _, s := range own {
		held[s.Device] = true
		g.Slices = append(g.Slices, s.Slice)
		gpu, _ := inventory.ByUUID(s.Device)
		g.NodeGPUsMiB = append(g.NodeGPUsMiB, gpu.MemMiB)
		g.GPUTypes = append(g.GPUTypes, gpu.Type)
	}
	g.MaskMinors = []device.Minor{}
	for _, gpu := range inventory.GPUs {
		if !held[gpu.UUID] {
			g.MaskMinors = append(g.MaskMinors, gpu.Minor)
		}
	}
	return g
}

// refuse records why the job gets nothing. A batch job that found no room (told is set) goes back
// into the queue as well, if the node's configuration says so.
func (p *prolog) refuse(ctx context.Context, g grant.Grant, reason string, told *slurm.Job) error {
	g.Refusal, g.Slices = reason, nil
	before, ok := p.previous(g)
	if ok && before.Refusal == "" {
		// A first prolog of this run granted slices; whatever hinders the second one, the job keeps them.
		p.log.Warn("the job keeps the slices that an earlier prolog granted", "reason", reason)
		return nil
	}
	if ok {
		g = before
	} else if err := p.recordRefusal(ctx, g); err != nil {
		return err
	}
	if p.refusedFor == "" {
		p.refusedFor = tally.Other
	}
	p.log.Warn("job refused", "restart", g.Restart, "uid", g.UID, "reason", g.Refusal)
	requeue := told != nil && p.mayRequeue(*told) && (p.gpus.Waits() || g.Restart < p.cfg.MaxRequeues)
	if !requeue || g.Requeued {
		return nil
	}
	if err := p.requeue(ctx, g, *told); err != nil {
		p.log.Error("the job fails instead of going back into the queue", "reason", err)
		p.gpus.Stayed(ctx)
		return nil
	}
	crashpoint.At("prolog/requeued")
	p.log.Info("job requeued", "restart", g.Restart)
	p.gpus.Back(ctx, *told)
	g.Requeued = true
	return p.rewriteRefusal(ctx, g)
}

func (p *prolog) mayRequeue(told slurm.Job) bool {
	return told.Batch && told.Requeue && p.cfg.OnNoFit == config.NoFitRequeue
}

// requeue sends this run back into the queue. Since the controller was asked, another node's prolog may
// have been quicker, or somebody else: a later run is not this prolog's to end.
func (p *prolog) requeue(ctx context.Context, g grant.Grant, told slurm.Job) error {
	requeued, err := p.requeuedByOthers(ctx, g)
	if err != nil || requeued {
		return err
	}
	if err := p.controller.Requeue(ctx, told); err != nil {
		if requeued, askErr := p.requeuedByOthers(ctx, g); askErr == nil && requeued {
			return nil
		}
		return err
	}
	return nil
}

func (p *prolog) requeuedByOthers(ctx context.Context, g grant.Grant) (bool, error) {
	told, err := p.controller.Job(ctx, g.Job)
	if err != nil {
		return false, err
	}
	if told.Restarts == g.Restart && told.Finished(g.Restart) {
		return false, fmt.Errorf("job %d has ended meanwhile, it is %s", g.Job, told.State)
	}
	return told.Restarts > g.Restart, nil
}

func devicesOf(held []state.Slice) (uuids []string) {
	for _, s := range held {
		uuids = append(uuids, string(s.Device))
	}
	return uuids
}

func jobsOf(held []state.Slice) (jobs []uint32) {
	for _, s := range held {
		if !slices.Contains(jobs, s.Job) {
			jobs = append(jobs, s.Job)
		}
	}
	return jobs
}
