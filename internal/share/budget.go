// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Budget is what all control calls of a node may take. Its zero value has a second's worth.
type Budget struct {
	changes, looks purse
}

// Names is what asking the driver after what one job's page names may take: a job that names without end, or what is not there, spends its own.
type Names struct{ purse purse }

// Afford takes what it costs to ask for a group and to give it its slice, or says that the job has to wait.
func (n *Names) Afford(now time.Duration) bool {
	n.purse.pass(now, ofNames)
	if n.purse.spent >= savedNames {
		return false
	}
	n.purse.spent += 2 * CostSlice
	return true
}

// Charge takes what is done because a group is not named any more.
func (n *Names) Charge(now, cost time.Duration) {
	n.purse.pass(now, ofNames)
	n.purse.spent += cost
}

// purse is a part of it. What was not spent in a second is lost, and a call may cost more than there is, which is waited for afterwards.
type purse struct{ spent, at time.Duration }

// Afford takes what a change costs, or says that it has to wait.
func (b *Budget) Afford(now, cost time.Duration) bool {
	return b.changes.take(now, cost, ofChanges)
}

// Spare takes it only where half of what can be had is left: what is good to know does not hold up changes, however many there are to look at.
func (b *Budget) Spare(now, cost time.Duration) bool {
	b.changes.pass(now, ofChanges)
	return b.changes.spent < time.Duration(ofChanges*float64(saved)/2) && b.Afford(now, cost)
}

// Look takes what a look costs. Looks go on while changes have to wait.
func (b *Budget) Look(now time.Duration) bool {
	return b.looks.take(now, CostLook, ofLooks)
}

// Charge takes what cannot wait: undoing what holds a program.
func (b *Budget) Charge(now, cost time.Duration) {
	b.changes.pass(now, ofChanges)
	b.changes.spent += cost
}

// Wait is for how long a change that is not afforded now has to.
func (b *Budget) Wait(now time.Duration) time.Duration {
	b.changes.pass(now, ofChanges)
	if over := float64(b.changes.spent) - ofChanges*float64(saved); over >= 0 {
		return time.Duration(over/ofChanges) + oneMore
	}
	return 0
}

func (p *purse) take(now, cost time.Duration, rate float64) bool {
	p.pass(now, rate)
	if p.spent >= time.Duration(rate*float64(saved)) {
		return false
	}
	p.spent += cost
	return true
}

func (p *purse) pass(now time.Duration, rate float64) {
	if now > p.at {
		p.spent = max(0, p.spent-time.Duration(rate*float64(now-p.at)))
		p.at = now
	}
}
