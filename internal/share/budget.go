// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// What a control call takes of a core (docs/decisions/053).
const (
	CostDisable = 700 * time.Microsecond // up to 64 channels off or on
	CostSlice   = 300 * time.Microsecond
	CostLook    = 300 * time.Microsecond // at the log, with what is new in it
)

const (
	ofACore = 0.02
	saved   = time.Second // for as long what was not spent is kept
)

// Budget is what all control calls of a node may take. Its zero value has a second's worth.
type Budget struct {
	spent time.Duration
	at    time.Duration
}

// Afford takes what a change costs, or says that it has to wait.
func (b *Budget) Afford(now, cost time.Duration) bool {
	b.pass(now)
	if b.spent >= allowed {
		return false
	}
	b.spent += cost
	return true
}

const allowed = time.Duration(ofACore * float64(saved))

// Charge takes what cannot wait: undoing what holds a program.
func (b *Budget) Charge(now, cost time.Duration) {
	b.pass(now)
	b.spent += cost
}

// Wait is for how long a change that is not afforded now has to.
func (b *Budget) Wait(now time.Duration) time.Duration {
	b.pass(now)
	if b.spent < allowed {
		return 0
	}
	return time.Duration(float64(b.spent-allowed)/ofACore) + 1
}

func (b *Budget) pass(now time.Duration) {
	if now > b.at {
		b.spent = max(0, b.spent-time.Duration(ofACore*float64(now-b.at)))
		b.at = now
	}
}
