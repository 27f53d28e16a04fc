// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// answer does the site's answer to a step.
func (k *keeper) answer(t *tenant, p Process, verdict share.Verdict) {
	site := map[string]share.Answer{config.CheatersLog: share.Log, config.CheatersFreeze: share.Freeze, config.CheatersKill: share.Kill}[k.Cheaters]
	does := share.Answers(site, verdict, t.frozen())
	if t.page != nil {
		t.page.saw(verdict)
	}
	said := []any{"job", p.Job, "pid", p.PID, "uid", p.UID, "seen", string(verdict), "cheaters", k.Cheaters}
	if does == share.Log {
		about := complaint{p.Job, verdict}
		if last, known := k.logged[about]; known && k.now-last < logEach {
			return
		}
		k.logged[about] = k.now
		k.Log.Warn("a process gets around its job's share of a GPU", said...)
		return
	}
	// A job that begins the next step as soon as one is killed loses all its steps.
	all := does == share.Kill && (site == share.Freeze || t.killed() > 0)
	k.ask(convict{t: t, Process: p, does: does, all: all, lasts: share.FreezeFor, why: "a process gets around its job's share of a GPU", said: said})
}

// ask begins a search for the step of a process.
func (k *keeper) ask(c convict) bool {
	if k.asking[c.Job] {
		return false
	}
	k.asking[c.Job] = true
	look, found := k.Step, k.steps
	go func() { // the search reads all processes of the node
		c.step, c.err = look(c.Process, c.all)
		c.pids = c.step.members()
		found <- c
	}()
	return true
}

// begins stops a new process for a while in a job of which a step was killed: longer with each kill. So a job that begins again at once after a kill gains
// no time of the GPU.
func (k *keeper) begins(o *owner) {
	if o.begun {
		return
	}
	o.begun = true
	age := k.now - time.Duration(o.StartTicks)*ledger.Tick
	for _, g := range k.gpus {
		for _, t := range g.tenants {
			if lasts := share.AfterKills(t.killed()); t.Job == o.Job && lasts > max(0, age) { // a start counts the time that a node slept
				o.begun = k.ask(convict{t: t, Process: o.acts(), does: share.Freeze, lasts: lasts, why: "a process begins, and a step of its job was killed",
					said: []any{"job", o.Job, "pid", o.PID, "uid", o.UID, "killed_before", t.killed()}})
			}
		}
	}
}

// convict is a process with a verdict, and the step that is frozen or killed for it.
type convict struct {
	Process
	t     *tenant
	does  share.Answer
	all   bool          // steps of its job
	lasts time.Duration // for so long it is frozen
	step  Frozen
	pids  []int
	err   error
	why   string
	said  []any // in the log
	ended bool  // all processes to be killed are gone
}

// hold freezes or kills a step, now that the search has found it.
func (k *keeper) hold(c convict) {
	if !c.ended && !c.t.gone && c.err == nil && c.does == share.Kill {
		k.kill(c)
		return
	}
	if delete(k.asking, c.Job); c.ended {
		if err := k.unwrite(c.step); err != nil {
			k.Log.Error("a step that was killed stays written down", "job", c.Job, "step", c.step.Step, "reason", err)
		}
	}
	if c.t.gone || c.ended {
		return
	}
	said := append(c.said, "step", c.step.Step, "frozen_before", c.t.frozen())
	start, there := k.StartOf(c.PID)
	switch {
	case c.err != nil && (!there || start != c.StartTicks):
		k.Log.Warn(c.why+", and has ended", said...)
	case c.err != nil:
		k.Log.Error(c.why+", and its step cannot be held", append(said, "reason", c.err)...)
	default:
		k.Log.Warn(c.why+": its step is frozen", append(said, "for_s", int(c.lasts/time.Second))...)
		if err := k.freeze(c); err != nil {
			k.Log.Error("not all of a step is frozen", "job", c.Job, "step", c.step.Step, "reason", err)
		}
	}
}

// kill ends a step, or all steps of a job, beside the loop, until no process is left.
func (k *keeper) kill(c convict) {
	what := ": its step is killed"
	if c.all {
		what = ": all steps of its job are killed"
	}
	k.Log.Warn(c.why+what, append(c.said, "step", c.step.Step, "frozen_before", c.t.frozen(), "killed_before", c.t.killed())...)
	if c.t.page != nil {
		c.t.page.killed()
		k.putPages() // its job may end by it
	}
	if err := k.write(c.step); err != nil { // it is stopped before it is killed
		k.Log.Error("a step that is killed is not written down", "job", c.Job, "step", c.step.Step, "reason", err)
	}
	log, look, ended := k.Log, k.Step, k.steps
	go func() {
		if err := c.step.Kill(func() (Frozen, error) { return look(c.Process, c.all) }); err != nil {
			log.Error("not all of a step is killed", "job", c.Job, "step", c.step.Step, "reason", err)
		}
		c.ended = true
		ended <- c
	}()
}

// freeze writes a step down, and then freezes it.
func (k *keeper) freeze(c convict) error {
	c.step.Until = k.now + c.lasts
	if err := k.write(c.step); err != nil {
		return err
	}
	k.frozen = append(k.frozen, frozen{c.step, append(c.pids, c.PID)})
	if c.t.page != nil {
		c.t.page.froze(true)
	}
	return c.step.Freeze()
}

// thawDue lets steps go on whose time is over.
func (k *keeper) thawDue() {
	for i := 0; i < len(k.frozen); {
		f := k.frozen[i]
		if k.now < f.Until {
			i++
			continue
		}
		k.frozen = slices.Delete(k.frozen, i, i+1)
		if err := k.thaw(f); err != nil {
			k.Log.Error("a step stays frozen", "job", f.Job, "step", f.Step, "reason", err)
		}
	}
}

func (k *keeper) thaw(f frozen) error {
	if p := k.pages[f.Job]; p != nil && !slices.ContainsFunc(k.frozen, func(other frozen) bool { return other.Job == f.Job }) {
		p.froze(false)
	}
	if err := f.Thaw(); err != nil {
		return err
	}
	return k.unwrite(f.Frozen)
}

// write adds a step to the record before it is stopped.
func (k *keeper) write(step Frozen) error {
	r := k.record
	r.Frozen = append(slices.Clone(r.Frozen), step)
	return k.setRecord(r)
}

func (k *keeper) unwrite(step Frozen) error {
	r := k.record
	r.Frozen = slices.Clone(r.Frozen)
	if at := slices.IndexFunc(r.Frozen, step.isSame); at >= 0 {
		r.Frozen = slices.Delete(r.Frozen, at, at+1)
	}
	return k.setRecord(r)
}

// stillFrozen takes over steps whose time is not over, from a worker that died.
func (k *keeper) stillFrozen() {
	was, err := ReadRecord(k.Run.VgpudOff(), k.BootID)
	if err != nil {
		k.Log.Error("steps that were frozen may stay so", "reason", err)
	}
	for _, step := range was.Frozen {
		k.record.Frozen = append(k.record.Frozen, step)
		k.frozen = append(k.frozen, frozen{step, step.members()})
	}
}
