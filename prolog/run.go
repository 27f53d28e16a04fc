// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/drained"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/logging"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// lockWait is how long a prolog queues behind others: each of them holds the lock for milliseconds.
const lockWait = 30 * time.Second

// prolog is one run of this program.
type prolog struct {
	opts       options
	cfg        config.Config
	log        hclog.Logger
	node       string
	job        hostJob
	controller slurm.Client
	told       slurm.Job // what the controller says of the job; empty: nothing
	store      state.Store
	recorded   bool // the use of another run waits in the spool
	gpus       source
	whole      request.GPUs // that Slurm gave to the job here, where whole_gpus says that they are placed here
	picked     []int        // Slurm's numbers of the GPUs that it picked; nil: it picks none here
	shards     request.Shards
	noGPUsHere bool   // it gave the job such on other nodes only
	files      error  // why the GPUs' device files are not as they are to be
	placed     bool   // the job has its slices
	notice     string // what is wrong with the configuration; "": nothing
	unbelieved error  // … where there is none that holds instead
	refusedFor string // a reason of package tally: it was refused; "": it was not
}

// hostJob is what slurmd's environment says about the job. Only the two requests come from the user.
type hostJob struct {
	id, uid, gid uint32
	restart      int    // -1: slurmd does not say
	sluid        string // "": this Slurm has none
	request      string
	defaults     string
}

func run(opts options) int {
	began := time.Now()
	node := config.NodeName()
	held := config.LoadHeld(opts.configPath)
	cfg := held.Config.ForNode(node)
	log, closer, err := logging.New("vgpu-prolog", cfg.Log)
	defer closer.Close()
	if err != nil {
		log.Error("the log goes to stderr", "reason", err)
	}
	for _, problem := range held.Problems {
		log.Error(held.Standing.String(), "file", problem.File, "key", problem.Key, "reason", problem.Error())
	}
	if held.Standing == config.AsWritten {
		if err := config.Keep(opts.configPath); err != nil {
			log.Warn("the next fault in the configuration drains the node", "reason", err)
		}
	}
	job, err := jobFromEnvironment()
	if err != nil {
		log.Error("not started by slurmd as its Prolog", "reason", err)
		return exitUsage
	}
	bootID, err := inventory.BootID()
	if err != nil {
		log.Error("no slice can be granted on this node", "reason", err)
		return exitBroken
	}
	p := &prolog{
		opts: opts, cfg: cfg, log: log.With("job", job.id), node: node, job: job,
		controller: slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Timeout: cfg.Slurm.ControllerTimeout,
			Node: os.Getenv("SLURMD_NODENAME")},
		store: state.Of(cfg, bootID, log),
	}
	p.gpus = p.sourceOf()
	if len(held.Problems) > 0 {
		p.notice = held.Standing.String() + ": " + held.Problems[0].Error()
		if held.Standing == config.Unknown {
			p.unbelieved = held.Problems[0]
		}
	}
	err = p.run(context.Background())
	if isFull(err) {
		err = p.refuseForLackOfSpace(context.Background(), err)
	}
	if err != nil {
		says := "this node cannot keep its state"
		if errors.Is(err, errUnheld) {
			says = "this node cannot hold jobs to their slices"
		}
		p.log.Error(says, "reason", err)
		return exitBroken
	}
	p.count(time.Since(began))
	p.sweep(context.Background())
	return exitOK
}

// requeuedBefore is the refusal of a run that somebody else put back into the queue.
const requeuedBefore = "the job was requeued before it began"

// run returns an error only when the node is broken.
func (p *prolog) run(ctx context.Context) error {
	if err := p.store.Prepare(); err != nil {
		return err
	}
	if err := p.begun(); err != nil && !isFull(err) {
		return err
	}
	p.shutPages(ctx)
	if err := p.leaveCommand(); err != nil {
		p.log.Warn("steps cannot run this prolog when slurmd did not", "reason", err)
	}
	defer p.ended()
	if err := p.leaveNotice(); err != nil {
		p.log.Warn("slurmd's log does not say what is wrong with the configuration", "reason", err)
	}
	p.closeFiles()
	p.beginVgpud()
	told, err := p.controller.Job(ctx, p.job.id)
	p.told = told
	crashpoint.At("prolog/asked")
	if errors.Is(err, slurm.ErrUnknownJob) {
		p.log.Warn("the controller has no such job, nothing is done for it")
		return nil
	}
	if err == nil && p.over(told) {
		p.log.Info("the job is being ended already, nothing is done for it", "state", told.State)
		return nil
	}
	var entitlement request.Entitlement
	if err == nil {
		entitlement, err = p.entitled(told)
	}
	if err != nil {
		return p.unknownEntitlement(ctx, told, err)
	}
	if p.job.restart < 0 {
		p.job.restart = told.Restarts
	}
	g := p.newGrant(entitlement)
	g.BySlurm = &p.cfg.Shards
	g.Whole, g.Account, g.Shards, g.HasText = p.whole.Count > 0, told.Account, p.shards.Count, told.HasText
	if told.Restarts == p.job.restart {
		g.Submitted = told.Submitted
	}
	if p.unbelieved != nil && !p.isWithoutGPUs() {
		return p.takeOut(ctx, g, drained.ConfigUnknown, p.unbelieved, &told)
	}
	if entitlement.IsZero() {
		if p.job.request == "" || p.noGPUsHere {
			return p.withoutSlices(ctx, g, told)
		}
		return p.refuse(ctx, g, "options of vgpu were given, but Slurm allocated no vgpu: the job did not pass the site's job-submit script; "+
			"ask for --gres=vgpu:1 as well", nil)
	}
	return p.withSlices(ctx, g, told)
}

func (p *prolog) withSlices(ctx context.Context, g grant.Grant, told slurm.Job) error {
	switch {
	case told.UID != p.job.uid:
		return p.refuse(ctx, g, fmt.Sprintf("the controller says that job %d is of uid %d, not %d", p.job.id, told.UID, p.job.uid), nil)
	case told.Restarts > p.job.restart:
		g.Requeued = true // it was, by somebody else; this run is being ended
		return p.refuse(ctx, g, requeuedBefore, nil)
	}
	if err := p.pluginNamed(); err != nil {
		return err
	}
	return p.place(ctx, g, told)
}

// over says that this run of the job has ended, or is about to. slurmd then starts none of its tasks any more
// ("already killed, do not launch batch job"), but may have run its epilog before this prolog, and
// nobody would clear away what is left here.
func (p *prolog) over(told slurm.Job) bool {
	this := p.job.restart < 0 || told.Restarts <= p.job.restart
	return this && told.State != "PENDING" && (told.State == "COMPLETING" || told.Finished(told.Restarts))
}

// unknownEntitlement decides about a job of which the controller does not say what it holds; told is empty where it
// says nothing at all.
func (p *prolog) unknownEntitlement(ctx context.Context, told slurm.Job, reason error) error {
	if p.job.restart < 0 {
		p.job.restart = 0
	}
	// A job that imitates the controller's answer must not gain by it.
	asks := p.job.request != "" || errors.Is(reason, slurm.ErrAmbiguous) || errors.Is(reason, slurm.ErrContradiction)
	if inv, err := p.readInventory(); !asks && err == nil && len(inv.GPUs) == 0 {
		p.log.Warn("it is not known what the job was allocated, but this node has no GPU", "reason", reason)
		return p.withoutVGPU(ctx)
	}
	if !asks && p.cfg.OnLimitFailure == config.LimitOpen {
		p.log.Error("it is not known what the job was allocated; on_limit_failure is open, so that it runs without limits", "reason", reason)
		return p.withoutVGPU(ctx)
	}
	g := p.newGrant(request.Entitlement{})
	if errors.Is(reason, errShardsUnsaid) {
		return p.takeOut(ctx, g, drained.ShardsUnsaid, reason, &told)
	}
	why := fmt.Sprintf("it is not known what the job was allocated on %s: %v", p.node, reason)
	if told.State != "" && !told.Runs() { // what it was allocated is taken back already
		why = fmt.Sprintf("this run of the job is ending or being requeued: the job is %s", told.State)
		if g.Requeued = told.Restarts > g.Restart; g.Requeued {
			why = requeuedBefore
		}
	}
	return p.refuse(ctx, g, why, nil)
}

// withoutVGPU leaves the mark that the plugin need not wait for a grant. A folder of an earlier
// run goes away.
func (p *prolog) withoutVGPU(ctx context.Context) error {
	if err := p.releaseOthers(ctx); err != nil {
		return err
	}
	if err := p.markNone(); err != nil {
		return err
	}
	p.log.Debug("the job has no vgpu")
	return nil
}

// newGrant is a grant with everything but slices or a refusal.
func (p *prolog) newGrant(entitlement request.Entitlement) grant.Grant {
	g := grant.Grant{
		Job: p.job.id, Restart: p.job.restart, SLUID: p.job.sluid, BootID: p.store.BootID, UID: p.job.uid, GID: p.job.gid, Node: p.node,
		Since: time.Now().UTC().Truncate(time.Millisecond), Entitlement: entitlement, Isolation: p.cfg.Isolation, Library: p.cfg.Library,
		DeviceDir: p.cfg.DeviceDir, Policy: p.cfg.Policy, FailOpen: p.cfg.OnLimitFailure == config.LimitOpen,
		DenyUserNamespaces: p.cfg.UserNamespaces == config.UserDeny,
	}
	if p.cfg.ClosesFiles() {
		g.StepDevices = rundir.StepDevices(p.cfg.DeviceDir)
	}
	return g
}

// sluidForm is how Slurm writes a SLUID.
var sluidForm = pattern.Late(`^s[0-9A-Z]{13}$`)

func jobFromEnvironment() (hostJob, error) {
	var job hostJob
	for _, field := range []struct {
		name string
		into *uint32
	}{{"SLURM_JOB_ID", &job.id}, {"SLURM_JOB_UID", &job.uid}, {"SLURM_JOB_GID", &job.gid}} {
		n, err := strconv.ParseUint(os.Getenv(field.name), 10, 32)
		if err != nil {
			return hostJob{}, fmt.Errorf("%s is %q, not a number", field.name, os.Getenv(field.name))
		}
		*field.into = uint32(n)
	}
	if job.id == 0 {
		return hostJob{}, errors.New("SLURM_JOB_ID is 0")
	}
	job.restart = -1
	if n, err := strconv.Atoi(os.Getenv("SLURM_JOB_RESTART_COUNT")); err == nil && n >= 0 {
		job.restart = n
	}
	if sluid := os.Getenv("SLURM_JOB_SLUID"); sluidForm().MatchString(sluid) {
		job.sluid = sluid
	}
	job.request = os.Getenv("SPANK_" + request.ControlRequest)
	job.defaults = os.Getenv("SPANK_" + request.ControlDefaults)
	return job, nil
}

// previous is the grant that an earlier prolog of this very run left, if any.
func (p *prolog) previous(g grant.Grant) (grant.Grant, bool) {
	before, err := grant.Read(p.cfg.Run().Grant(p.job.id))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.log.Error("a grant cannot be used and is made again", "reason", err)
		}
		return grant.Grant{}, false
	}
	return before, before.BootID == p.store.BootID && before.IsSameRun(g)
}

// clocksDiffer is how far the controller's clock may be from this node's: munge takes no more.
const clocksDiffer = 5 * time.Minute

// leftover says that slices which stand under this run's number are another job's: slurmctld began anew with its numbers, and the
// epilog of the first job of this number was lost.
func (p *prolog) leftover(g grant.Grant, held []state.Slice) bool {
	before, err := grant.Read(p.cfg.Run().Grant(p.job.id))
	if err == nil && before.Job == g.Job && before.Restart == g.Restart && !before.IsSameRun(g) {
		return true
	}
	return slices.ContainsFunc(held, func(s state.Slice) bool {
		earlier := !g.Submitted.IsZero() && s.Since.Time().Before(g.Submitted.Add(-clocksDiffer))
		return s.Job == g.Job && s.Restart == g.Restart && (s.UID != g.UID || earlier && errors.Is(err, fs.ErrNotExist))
	})
}
