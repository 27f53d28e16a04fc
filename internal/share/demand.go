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

// Rival is a tenant at work on a GPU, with the figures by which it competes with others.
type Rival struct {
	Weight float64
	Wants  float64 // of the GPU, while it is on
	May    float64 // of the GPU, over a time; 1: all that it gets
	Off    bool
}

// levelsOf is the part of the GPU that each rival gets that is on: by its weight, and by the parts that others do not use. less says that it asks for no more.
func levelsOf(all []Rival) (levels []float64, less []bool) {
	levels, less = make([]float64, len(all)), make([]bool, len(all))
	for again := true; again; {
		free, weights := 1.0, 0.0
		for i, r := range all {
			switch {
			case less[i]:
				free -= levels[i]
			case !r.Off:
				weights += r.Weight
			}
		}
		again = false
		for i, r := range all {
			if r.Off || less[i] {
				continue
			}
			if levels[i] = free * part(r.Weight, weights); r.Wants < levels[i] {
				levels[i], less[i], again = r.Wants, true, true
			}
		}
	}
	return levels, less
}

// Could is the part of the GPU that each rival would get if it always had work.
func Could(all []Rival) []float64 {
	could, less := levelsOf(all)
	for i := range all {
		if less[i] {
			eager := slices.Clone(all)
			eager[i].Wants = 1
			levels, _ := levelsOf(eager)
			could[i] = levels[i]
		}
	}
	return could
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
