// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"cmp"
	"slices"
	"time"
)

// Demand is the part of the GPU that a slice would use if it could, from its use of the time that it could have had. A new slice counts as asking for all,
// until it was seen to use less.
type Demand struct{ used, on float64 } // of the last half second: of the GPU, and of the time for which it was on

// NewDemand is of a slice that used this part of the GPU while it was on.
func NewDemand(used float64) Demand { return Demand{used, 1} }

// Part is of the GPU, while it is on.
func (d *Demand) Part() float64 {
	if d.on < 0.001 {
		return 1
	}
	return min(1, d.used/d.on)
}

// Look takes figures of a time: for how long the slice was on, how much it could have used meanwhile, and its use, of 1.
func (d *Demand) Look(gone, on, could time.Duration, used float64) {
	if gone <= 0 || on <= 0 {
		return
	}
	part := min(1, float64(on)/float64(gone))
	switch {
	case used*float64(gone) >= takes*float64(could):
		d.used, d.on = 1, 1
	case used > part*d.Part():
		d.used, d.on = used, part
	default:
		if d.on == 0 {
			d.used, d.on = 1, 1
		}
		weight := float64(gone) / float64(gone+recent)
		d.used += weight * (used - d.used)
		d.on += weight * (part - d.on)
	}
}

// Uses is the part of a time that the slice is expected to use.
func (d *Demand) Uses(gone, on, could time.Duration) float64 {
	if gone <= 0 {
		return 0
	}
	return min(d.Part()*float64(on), float64(could)) / float64(gone)
}

// Parts is the part of a period for which each rival is on, so that none has more than its cap. All are on at first, and as one goes off the others get more.
func Parts(all []Rival) []float64 {
	all = slices.Clone(all)
	parts, left := make([]float64, len(all)), make([]float64, len(all))
	for i, r := range all {
		parts[i], left[i] = 1, r.May
	}
	for at := 0.0; at < 1; {
		levels, _ := levelsOf(all)
		next := 1 - at
		for i, r := range all {
			if !r.Off && r.May < 1 && levels[i] > 0 {
				next = min(next, left[i]/levels[i])
			}
		}
		at += next
		for i, r := range all {
			if left[i] -= next * levels[i]; !r.Off && r.May < 1 && at < 1 && left[i] <= 1e-9 {
				parts[i], all[i].Off = at, true
			}
		}
	}
	together(parts)
	return parts
}

// together makes nearly equal parts equal, so that one call puts these rivals off.
func together(parts []float64) {
	order := make([]int, 0, len(parts))
	for i, part := range parts {
		if part < 1 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(parts[a], parts[b]) })
	for len(order) > 0 {
		n, sum := 0, 0.0
		for n < len(order) && parts[order[n]]-parts[order[0]] <= atOnce {
			sum += parts[order[n]]
			n++
		}
		for _, i := range order[:n] {
			parts[i] = sum / float64(n)
		}
		order = order[n:]
	}
}
