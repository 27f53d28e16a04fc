// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// take makes the loop's own picture follow the node.
func (k *keeper) take(node Node) {
	began := map[uint32]time.Duration{} // the first of a job's processes that compute
	for _, p := range node.Processes {
		if start := time.Duration(p.StartTicks) * ledger.Tick; len(p.Groups) > 0 && (began[p.Job] == 0 || start < began[p.Job]) {
			began[p.Job] = start
		}
	}
	here := map[device.UUID]bool{}
	for _, on := range node.GPUs {
		here[on.UUID] = true
		g := k.gpus[on.UUID]
		if g != nil && g.Refused != on.Refused {
			k.leaveGPU(g)
			g = nil
		}
		if g == nil {
			g = &gpu{turns: turns{on: -1}}
			k.gpus[on.UUID] = g
		}
		k.follow(g, on, began)
	}
	for uuid, g := range k.gpus {
		if !here[uuid] {
			k.leaveGPU(g)
			delete(k.gpus, uuid)
		}
	}
	jobs := node.jobs()
	if slices.ContainsFunc(k.jobs, func(job uint32) bool { return !slices.Contains(jobs, job) }) {
		k.heart.jobEnded(time.Now())
	}
	k.jobs = jobs
	k.closePages(jobs)
	k.takeProcesses(node.Processes)
	for _, g := range k.gpus {
		k.settle(g)
	}
	k.rest()
}

// leaveGPU lets go of all tenants of a GPU.
func (k *keeper) leaveGPU(g *gpu) {
	k.onAgain(g)
	for _, t := range g.tenants {
		k.leave(g, t)
	}
	k.closeGPU(g)
}

// follow makes a GPU's tenants those whose slices are there.
func (k *keeper) follow(g *gpu, on NodeGPU, began map[uint32]time.Duration) {
	before := g.tenants
	g.NodeGPU, g.tenants = on, nil
	percents := make([]int, len(on.Slices))
	for i, s := range on.Slices {
		percents[i] = s.SMPercent
	}
	weights, total := share.Weights(percents), 0.0
	was := g.weights
	g.weights = weights
	for _, w := range weights {
		total += w
	}
	for i, s := range on.Slices {
		at := slices.IndexFunc(before, func(t *tenant) bool { return t.key == keyOf(s) })
		var t *tenant
		if at >= 0 {
			t = before[at]
		} else {
			t = &tenant{key: keyOf(s)}
		}
		t.Slice = s
		if total > 0 {
			t.share = weights[i] / total
		}
		if !on.Refused {
			k.classify(t)
			t.followCap()
		}
		k.open(t, began[s.Job])
		g.tenants = append(g.tenants, t)
	}
	for _, t := range before {
		if !slices.Contains(g.tenants, t) {
			k.leave(g, t)
		}
	}
	if !slices.Equal(before, g.tenants) || !slices.Equal(was, weights) { // the plan is for other tenants, or other shares
		g.planned = 0
	}
}

// classify gives a slice of the latency class its bucket.
func (k *keeper) classify(t *tenant) {
	switch {
	case !t.isLatency():
		t.bucket, t.goesFirst = nil, false
	case t.bucket == nil:
		b := share.NewBucket(float64(t.SMPercent)/100, k.Burst)
		t.bucket = &b
	default:
		t.bucket.Share, t.bucket.Burst = float64(t.SMPercent)/100, k.Burst
	}
}

// open begins a tenant's page: the prolog waits for this look. A prolog that was killed is run again, and makes another page.
func (k *keeper) open(t *tenant, began time.Duration) {
	if t.page != nil && t.works() {
		return
	}
	p, err := k.pageOf(t.Job)
	if err != nil || p == t.page {
		return // it is gone, or the prolog of a build from before makes it after the slices; the scout comes again
	}
	if t.Place >= len(p.devices) {
		k.once("a job's time page has no room for all of its slices", ledger.ErrLayout)
		return
	}
	t.page = p
	t.resume(p.devices[t.Place], began, k.now)
	t.say()
	p.changed = true
}

// leave lets go of a tenant whose slice is gone.
func (k *keeper) leave(g *gpu, t *tenant) {
	var mine []*group
	for _, member := range t.groups {
		if member.off {
			mine = append(mine, member)
		}
	}
	if len(mine) > 0 && g.device != nil {
		k.switchAll(g, false, mine)
	}
	t.groups, t.gone = nil, true
}

// closePages closes those of jobs that are gone.
func (k *keeper) closePages(jobs []uint32) {
	for job, p := range k.pages {
		if _, here := slices.BinarySearch(jobs, job); !here {
			p.Close()
			delete(k.pages, job)
		}
	}
	for job := range k.names {
		if _, here := slices.BinarySearch(jobs, job); !here {
			delete(k.names, job)
		}
	}
	for about := range k.logged {
		if _, here := slices.BinarySearch(jobs, about.job); !here {
			delete(k.logged, about)
		}
	}
}

// takeProcesses follows which processes have which groups.
func (k *keeper) takeProcesses(processes []Process) {
	here := map[audit.Process]bool{}
	k.unseeNamed()
	for _, p := range processes {
		if len(p.Groups) == 0 && p.More == 0 {
			continue
		}
		here[p.Process] = true
		k.seeNamed(p.Job)
		o := k.owners[p.Process]
		if o == nil && k.mayAsk(p.Job) {
			o = k.newOwner(p)
		}
		if o == nil || o.heir != nil {
			continue
		}
		o.Process = p
		k.takeGroups(o)
	}
	for id, o := range k.owners {
		switch {
		case here[id]:
		case o.Ended():
			k.drop(o)
		case o.heir != nil: // no page names its groups
		default: // its groups stay: its page may name none for a moment
			for key, member := range o.groups {
				if !k.stillHas(member) {
					k.remove(member)
					delete(o.groups, key)
				}
			}
		}
	}
}

func (m *group) rename(named ledger.Group) {
	m.handles.FD, m.handles.Subdevice = int(named.FD), named.Subdevice
	before := m.channels
	m.channels, m.unnamed = nil, int(named.ChannelCount) > len(named.Channels)
	for _, handle := range named.Channels {
		m.channels = append(m.channels, channels.Channel{Client: named.Client, Handle: handle})
	}
	if m.of.capState.hold == nil {
		return
	}
	for _, c := range before { // a cap holds all groups that are there; the next call drops those that are gone
		if c.Client == named.Client && !slices.Contains(m.channels, c) && len(m.channels) < channels.MostChannels {
			m.channels = append(m.channels, c)
		}
	}
}

// placeOf is the GPU of a group, and its tenant.
func (k *keeper) placeOf(o *owner, named ledger.Group) (*gpu, *tenant) {
	for _, g := range k.gpus {
		if g.Refused && g.refusal.tried {
			continue
		}
		for _, t := range g.tenants {
			if t.Job != o.Job {
				continue
			}
			if instance, ok := k.instance(g); ok && instance == named.DeviceInstance {
				return g, t
			}
		}
	}
	return nil, nil
}

// instance is how the driver counts a GPU, for as long as it is open.
func (k *keeper) instance(g *gpu) (uint32, bool) {
	if instance, known := k.instances[g.UUID]; known {
		return instance, true
	}
	if err := k.openGPU(g); err != nil {
		k.once("a GPU cannot be asked for", err)
		return 0, false
	}
	k.instances[g.UUID] = g.device.DeviceInstance()
	return k.instances[g.UUID], true
}

// remove forgets a group. A group that is off is let on first: its process may have made another of it, or be about to end.
func (k *keeper) remove(member *group) {
	for _, g := range k.gpus {
		for _, t := range g.tenants {
			at := slices.Index(t.groups, member)
			if at < 0 {
				continue
			}
			if member.off && g.device != nil {
				k.namesOf(member.owner.Job).Charge(k.now, share.CostDisable)
				k.switchAll(g, false, []*group{member})
			}
			t.groups = slices.Delete(t.groups, at, at+1)
			t.ends(uint32(member.owner.PID), k.now)
			g.planned = 0
		}
	}
}

// forget drops a group that is not its process's any more.
func (k *keeper) forget(member *group) {
	member.channels = nil // their process is not known
	k.remove(member)
	delete(member.owner.groups, groupKey{member.handles.Client, member.handles.Handle})
}

// drop forgets a process.
func (k *keeper) drop(o *owner) {
	k.removeGroups(o)
	k.bequeath(o)
	k.remember(o)
	o.Close()
	delete(k.owners, o.Process.Process)
}

func (k *keeper) removeGroups(o *owner) {
	for key, member := range o.groups {
		k.remove(member)
		delete(o.groups, key)
	}
}

// settle opens the files that a GPU needs, and closes the others: no log for one tenant alone, none of its files without a tenant.
func (k *keeper) settle(g *gpu) {
	for _, t := range g.tenants {
		t.pids = t.pids[:0]
		for _, o := range k.owners {
			if o.Job == t.Job && (t.has(o.Process.Process) || len(o.groups) == 0) {
				t.pids = append(t.pids, uint32(o.PID))
			}
		}
		for pid, until := range t.late {
			switch {
			case k.now >= until:
				delete(t.late, pid)
			case !slices.Contains(t.pids, pid):
				t.pids = append(t.pids, pid)
			}
		}
	}
	k.letOnLost(g)
	working, counting := g.working(), g.counting()
	switch {
	case working == 0:
		k.onAgain(g)
	case working < 2 && len(g.turns.sets) > 0:
		k.endTurns(g)
	}
	if counting < 2 && !g.untracked {
		wasLogged := g.log != nil
		k.closeLog(g)
		if wasLogged {
			g.looked = 0
		}
	}
	if counting == 0 {
		g.looked, g.planned = 0, 0
		for _, t := range g.tenants {
			t.percent, t.slice = 0, 0
			if t.page != nil {
				t.account.Looked = k.now
				t.say()
			}
		}
		return
	}
	if working > 0 && (counting > 1 || g.untracked) && g.log == nil {
		k.openLog(g)
	}
	if g.looked == 0 {
		k.begin(g)
	}
	if working > 0 && g.planned == 0 {
		k.planNow(g)
	}
	if working > 0 {
		k.holdAll(g)
	}
}

// letOnLost lets on, in as few calls as possible, the channels that an earlier vgpud may have left off.
func (k *keeper) letOnLost(g *gpu) {
	if len(g.lost) == 0 {
		return
	}
	if k.openGPU(g) == nil {
		k.budget.Charge(k.now, share.CostDisable)
		_ = enable(g.device, g.lost) // a channel that is still off is let on with the next turns
	}
	g.lost = nil
}

// rest closes all files where no slice works.
func (k *keeper) rest() {
	if len(k.atWork()) > 0 {
		if k.unseenAt = 0; k.lookAt == 0 {
			k.lookAt = k.now
		}
		return
	}
	k.mayBeUnseen()
	if k.lookAt != 0 {
		k.lookAt = 0
		k.samples.rest()
	}
	if k.askAt > 0 { // a process may have work in a moment
		return
	}
	for _, o := range k.owners {
		k.drop(o)
	}
	k.closeDriver()
}
