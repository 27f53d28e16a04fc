// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// keeper is one run of the loop. Nothing but its own goroutine touches it.
type keeper struct {
	Parts
	heart     heart
	driver    Driver // nil: no file of the driver is open
	instances map[device.UUID]uint32
	gpus      map[device.UUID]*gpu
	owners    map[audit.Process]*owner
	died      map[int]died // processes that have ended
	pages     map[uint32]*page
	budget    share.Budget
	record    Record
	frozen    []frozen
	samples   *samples
	lookAt    time.Duration           // 0: nothing is at work
	names     map[uint32]*share.Names // of each job
	unseenAt  time.Duration           // when to look for programs that no page names; 0: no slice has a cap, or a slice works
	askAt     time.Duration           // when the driver is asked for processes that wait; 0: none waits
	now       time.Duration
	began     time.Duration   // of this run
	said      map[string]bool // log lines that come once
	jobs      []uint32        // that have slices
	judgeNext int
	logged    map[complaint]time.Duration
	asking    map[uint32]bool // jobs for which a step is searched
	steps     chan convict
}

// Run keeps shares until stop is closed, and then lets all programs go. It writes its state to the pipe of its supervisor.
func Run(stop <-chan struct{}, pipe io.Writer, parts Parts) error {
	changes, err := parts.Changes()
	if err != nil {
		return fmt.Errorf("watch the node's slices: %w", err)
	}
	defer changes.Close()
	k := newKeeper(parts, pipe)
	k.stillFrozen()
	k.samples = beginSamples(parts.Sampler)
	defer k.samples.end()
	scout := beginScout(parts.Node, changes.C())
	defer scout.end()
	ended := make(chan struct{})
	defer close(ended)
	go k.heart.run(ended)
	k.heart.becomes(Empty, time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return k.end()
		case node := <-scout.found:
			k.tickClock()
			k.take(node)
			if err := changes.Watch(node.jobs()); err != nil { // each time: a job's page may be another one by now
				k.once("not every job's groups are watched", err)
			}
		case c := <-k.steps:
			k.tickClock()
			k.hold(c)
		case sampled := <-k.samples.got:
			k.tickClock()
			k.lookAll(sampled)
		case <-timer.C:
			k.tickClock()
			k.onTime()
		}
		k.putPages()
		k.goesOn()
		if next := k.next(); next > 0 {
			timer.Reset(max(0, next-k.Clock()))
		} else {
			timer.Stop()
		}
	}
}

func newKeeper(parts Parts, pipe io.Writer) *keeper {
	return &keeper{
		Parts: parts, began: parts.Clock(), heart: heart{pipe: pipe, wake: make(chan struct{}, 1)}, record: Record{BootID: parts.BootID},
		gpus: map[device.UUID]*gpu{}, instances: map[device.UUID]uint32{}, owners: map[audit.Process]*owner{}, died: map[int]died{},
		pages: map[uint32]*page{}, names: map[uint32]*share.Names{}, said: map[string]bool{}, logged: map[complaint]time.Duration{},
		asking: map[uint32]bool{}, steps: make(chan convict, 1),
	}
}

func (k *keeper) tickClock() { k.now = k.Clock() }

// goesOn writes the loop's state to the supervisor, and that the loop makes progress.
func (k *keeper) goesOn() {
	doing := Idle
	switch {
	case k.isHolding():
		doing = Holding
	case k.lookAt > 0:
		doing = Working
	case len(k.gpus) == 0:
		doing = Empty
	}
	k.heart.becomes(doing, time.Now())
	k.heart.beat(time.Now())
}

// isHolding says that a group is off or a step frozen now. The record names more: groups that may be off in a moment.
func (k *keeper) isHolding() bool {
	if len(k.record.Frozen) > 0 {
		return true
	}
	for _, g := range k.gpus {
		if len(g.turns.sets) > 0 || len(g.offChannels()) > 0 {
			return true
		}
	}
	return false
}

// next is when the loop has to do something; 0: never.
func (k *keeper) next() (at time.Duration) {
	sooner := func(t time.Duration) {
		if t > 0 && (at == 0 || t < at) {
			at = t
		}
	}
	sooner(k.lookAt)
	sooner(k.askAt)
	sooner(k.unseenAt)
	for _, g := range k.gpus {
		if len(g.turns.sets) > 0 {
			sooner(g.turns.end)
		}
		sooner(g.period.next)
	}
	for _, f := range k.frozen {
		sooner(f.Until)
	}
	if k.isHolding() {
		sooner(k.now + mostStall/4)
	}
	return at
}

// onTime does the work that is due.
func (k *keeper) onTime() {
	k.thawDue()
	k.askWaiting()
	k.askUnseen()
	for _, g := range k.gpus {
		if len(g.turns.sets) > 0 && k.now >= g.turns.end {
			k.turn(g)
		}
		if g.period.next > 0 && k.now >= g.period.next {
			k.holdAll(g)
		}
	}
	if k.lookAt > 0 && k.now >= k.lookAt {
		k.lookAt = k.now + k.lookEach()
		if !k.samples.ask(k.atWork(), k.unknown(), k.now) { // NVML has not answered the last time
			k.lookAll(sampled{})
		}
	}
}

func (k *keeper) atWork() (uuids []device.UUID) {
	for uuid, g := range k.gpus {
		if g.counting() > 0 {
			uuids = append(uuids, uuid)
		}
	}
	slices.Sort(uuids)
	return uuids
}

// unknown are GPUs on which several tenants work, and where the log has not named the process that is on: it does so when another comes on, maybe in hours.
func (k *keeper) unknown() (uuids []device.UUID) {
	for uuid, g := range k.gpus {
		if g.Refused && g.counting() > 1 || g.log != nil && g.looked != 0 && !g.meter.IsAnyOn() && k.now-g.asked >= onlyEach {
			uuids = append(uuids, uuid)
			g.asked = k.now
		}
	}
	return uuids
}

func (k *keeper) lookEach() time.Duration {
	logs, each := 0, quietEach
	for _, g := range k.gpus {
		if g.counting() > 0 && (g.quiet < quietAfter || slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.capState.hold != nil })) {
			each = min(each, lookEach)
		}
		if g.log == nil {
			continue
		}
		logs++
		if slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.bucket != nil && t.works() }) && g.quiet < quietAfter {
			each = latencyEach
		}
	}
	if logs > manyGPUs {
		return 2 * each
	}
	return each
}

// once writes a line to the log once for each kind of reason: a fault of a node is there at each look.
func (k *keeper) once(what string, err error) {
	kind := what
	for _, is := range []error{channels.ErrForbidden, channels.ErrNoCopies, channels.ErrNotTheirs, channels.ErrGone} {
		if errors.Is(err, is) {
			kind += is.Error()
		}
	}
	if !k.said[kind] {
		k.said[kind] = true
		k.Log.Error(what, "reason", err)
	}
}

// end lets all programs go, also where one call fails, and closes everything.
func (k *keeper) end() error {
	k.tickClock()
	var errs []error
	for _, g := range k.gpus {
		errs = append(errs, k.allOn(g))
		k.closeGPU(g)
	}
	all := k.frozen
	k.frozen = nil
	for _, f := range all {
		errs = append(errs, k.thaw(f))
	}
	for _, o := range k.owners {
		o.Close()
	}
	k.putPages()
	for _, p := range k.pages {
		p.Close()
	}
	k.closeDriver()
	if err := errors.Join(errs...); err != nil { // the record stays, for the supervisor
		return fmt.Errorf("let go of what is held: %w", err)
	}
	if k.record.isEmpty() {
		return nil
	}
	return k.setRecord(Record{BootID: k.BootID})
}
