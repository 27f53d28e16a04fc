// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// window is one look of a meter.
type window struct {
	Look
	gone      time.Duration
	lost      bool // records, so that the resident process is not known for all of it
	present   []bool
	off       []bool // was off for a part of it
	around    *around
	had       []time.Duration // residence less the turns; negative where an end is older than the last look
	untracked time.Duration   // the same of processes that belong to no tenant here
}

// divide returns the GPU time of each tenant, by the best figures of this look.
func (w *window) divide(found []Usage) []time.Duration {
	ran, only := 0, -1
	for i := range found {
		if w.had[i] > 0 {
			ran, only = ran+1, i
		}
	}
	if w.untracked > 0 {
		ran++
	}
	if w.NoLog {
		ran, only = w.alone()
	}
	used := make([]time.Duration, len(found))
	busy := time.Duration(w.Active * float64(w.gone))
	switch {
	case w.Active < 0 && (w.NoLog || w.lost):
	case w.Active >= 0 && ran == 1 && only >= 0 && (w.NoLog || !w.lost):
		w.known(found, true)
		copy(used, w.had)
		used[only] = busy
	case w.Active < 0, w.Active >= full && !w.lost && ran > 0:
		w.known(found, w.Active >= full)
		copy(used, w.had)
	case ran > 0 && !w.NoLog:
		w.known(found, false)
		if w.around != nil && w.around.fills() {
			busy = w.ofThoseOff(busy, used)
		}
		w.split(busy, used)
	case w.NoLog && ran == 0, w.Active < slack:
		w.known(found, true)
	}
	return used
}

// alone counts the tenants that are present, and returns the place of one.
func (w *window) alone() (count, only int) {
	only = -1
	for i, present := range w.present {
		if present {
			count, only = count+1, i
		}
	}
	return count, only
}

func (w *window) known(found []Usage, exact bool) {
	for i := range found {
		found[i].Known, found[i].Exact = true, exact
	}
}

// split divides a sum by residence. The last program stays resident while no program has work, so each figure is wrong by up to 14 points.
// The engine's time contains the switches that a neighbour's small kernels cause: a tenant is charged with little more than its residence.
func (w *window) split(sum time.Duration, used []time.Duration) {
	all := w.untracked
	for i, had := range w.had {
		if used[i] == 0 {
			all += max(0, had)
		}
	}
	for i, had := range w.had {
		if used[i] != 0 || all == 0 {
			continue
		}
		part := time.Duration(float64(sum) * float64(max(0, had)) / float64(all))
		used[i] = min(part, max(0, had)+time.Duration(besideSwitches*float64(w.gone))) + min(0, had)
	}
}
