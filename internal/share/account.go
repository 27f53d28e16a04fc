// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Account is what a slice's time page says. Times are of one clock that does not go back while a node runs.
type Account struct {
	Busy, Unknown time.Duration
	Looked        time.Duration // when the last look was; 0: never
	NotExact      bool          // some of Busy is a part of a sum
}

// Resume goes on after a time in which vgpud did not count.
func (a *Account) Resume(now time.Duration) {
	if a.Looked != 0 && now > a.Looked {
		a.Unknown += now - a.Looked
	}
	a.Looked = now
}

// Look adds what a look found.
func (a *Account) Look(now time.Duration, u Usage) {
	if !u.Known {
		a.Resume(now)
		return
	}
	a.Busy += u.Busy
	a.NotExact = a.NotExact || !u.Exact && u.Busy > 0
	a.Looked = now
}
