// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Budget is what all control calls of a node may take. Its zero value has a second's worth.
type Budget struct {
	changes, looks purse
}

// Names is the part of a core for queries of the driver about the groups on one job's page. A job that writes names without end, or of groups that are
// not there, spends its own part.
type Names struct{ purse purse }

// Afford takes the cost of a query for a group and of its time slice, or says that the job has to wait.
func (n *Names) Afford(now time.Duration) bool {
	n.purse.pass(now, ofNames)
	if n.purse.spent >= savedNames {
		return false
	}
	n.purse.spent += 2 * CostSlice
	return true
}

// Charge takes the cost of calls for a group that its page does not name any more.
func (n *Names) Charge(now, cost time.Duration) {
	n.purse.pass(now, ofNames)
	n.purse.spent += cost
}

// purse is one part of the budget. Credit that was not spent in a second is lost. A call may cost more than the credit; then the next call waits.
type purse struct{ spent, at time.Duration }

// Afford takes the cost of a change, or says that the change has to wait.
func (b *Budget) Afford(now, cost time.Duration) bool {
	return b.changes.take(now, cost, ofChanges)
}

// Spare takes the cost of a query only where half of the most credit is left, so that queries never hold up changes.
func (b *Budget) Spare(now, cost time.Duration) bool {
	b.changes.pass(now, ofChanges)
	return b.changes.spent < time.Duration(ofChanges*float64(saved)/2) && b.Afford(now, cost)
}

// Look takes the cost of a look. Looks go on while changes have to wait.
func (b *Budget) Look(now time.Duration) bool {
	return b.looks.take(now, CostLook, ofLooks)
}

// Charge takes the cost of a call that cannot wait: a program is let go.
func (b *Budget) Charge(now, cost time.Duration) {
	b.changes.pass(now, ofChanges)
	b.changes.spent += cost
}

// Wait is for how long a change that is not afforded now has to wait.
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
