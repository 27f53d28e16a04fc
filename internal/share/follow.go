// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// followed are figures of the tenants that sleep and of those that always have work.
type followed struct {
	behind, ahead float64
	sleeps, short bool          // a tenant sleeps; its steps are shorter than its time slice
	start         time.Duration // time for the others beside one step of the sleeper that is behind most
	had, due      float64       // use and due of the tenants that always have work
}

// follow finds the sleepers, and how short the others' time slices are to be for them. README.md has the states.
func (r *Rule) follow(tenants []Tenant, long []bool, due []float64, limited []bool) {
	var f followed
	for i, t := range tenants {
		if t.Groups == 0 || t.Cut || !limited[i] && t.Used < starved*due[i] {
			r.taker[i] = false
		}
		long[i] = t.Groups > 0 && !t.Cut && !r.taker[i]
		f.short = f.short || long[i]
	}
	for i, t := range tenants {
		// A tenant that is cut, and leaves now and then, has steps longer than its time slice. It counts as a sleeper while no tenant has shorter steps.
		if !f.short && t.Groups > 0 && t.Left > leftOften && due[i]-t.Used > 2*slack {
			long[i] = true
		}
		f.sleeps = f.sleeps || long[i] || r.taker[i]
		if long[i] {
			if behind := due[i] - t.Used; behind > f.behind && t.Used > heavy {
				f.start = time.Duration(float64(t.Step) * (1 - due[i]) / due[i])
			}
			f.behind, f.ahead = max(f.behind, due[i]-t.Used), max(f.ahead, t.Used-due[i])
		} else {
			f.had, f.due = f.had+t.Used, f.due+due[i]
		}
	}
	if f.behind > slack && f.ahead > 2*slack {
		for i, t := range tenants {
			if long[i] && !limited[i] && t.Used-due[i] > 2*slack && (t.Used > heavy || float64(t.Step) > heavy*float64(t.Step+t.Pause)) {
				r.taker[i], long[i] = true, false
			}
		}
	}
	r.shorten(f)
}

func (r *Rule) shorten(f followed) {
	switch {
	case !f.sleeps:
		r.short = 0
	case r.short == 0 && f.behind > slack:
		r.short = leastRound // the steps are longer than the time slice
		if f.short {
			r.short = min(leastRound, max(leastRound/10, f.start))
		}
	case r.short != 0 && f.had < starved*f.due:
		r.short = min(longSlice, r.short*3/2)
	case r.short != 0 && f.behind > slack:
		r.short = max(shortest, time.Duration(float64(r.short)*(1-min(0.5, 4*f.behind))))
	case r.short != 0 && f.ahead > slack:
		r.short = min(longSlice, time.Duration(float64(r.short)*(1+min(0.5, 4*f.ahead))))
	}
}

// dues are the parts of the GPU that the tenants are to have. A part that a tenant does not ask for, or may not have, goes to the others.
func (r *Rule) dues(tenants []Tenant) (due []float64, limited []bool) {
	all := make([]Rival, len(tenants))
	for i, t := range tenants {
		all[i] = Rival{Weight: t.Share, Wants: r.most(tenants, i), Off: t.Groups == 0}
	}
	return levelsOf(all)
}

// most is the largest part that a tenant can have: its cap, or the part that it asks for. A tenant asks for no more than its use where its pauses are longer
// than the others' turns, for which it could be waiting.
func (r *Rule) most(tenants []Tenant, i int) float64 {
	t := tenants[i]
	most := 1.0
	if t.Most > 0 {
		most = t.Most
	}
	if t.Cut || t.Pause == 0 || r.timeSlices == nil {
		return most
	}
	takes, others := time.Duration(0), time.Duration(0)
	for j, o := range tenants {
		turn := r.timeSlices[j]
		if o.Step > 0 {
			turn = min(turn, o.Step)
		}
		turn += aSwitch
		switch {
		case j == i || o.Groups == 0:
		case r.short > 0 && o.Cut:
			takes = max(takes, turn) // these take turns: one of them is on at a time
		default:
			others += time.Duration(o.Groups) * turn
		}
	}
	if float64(t.Pause) > waited*float64(takes+others) {
		units := float64(max(1, len(t.PIDs)))
		most = min(most, asks*units*float64(t.Step)/float64(t.Step+t.Pause))
	}
	return most
}
