// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"slices"
	"time"
)

// Demand is which part of the GPU a slice would use if it could, by what it used of what it could have had. It is taken to ask for all until it was seen to use less.
type Demand struct{ used, on float64 } // of the last half second: of the GPU, and of the time for which it was on

// NewDemand is of one who was seen to use this part of the GPU while it was on.
func NewDemand(used float64) Demand { return Demand{used, 1} }

// Part is of the GPU, while it is on.
func (d *Demand) Part() float64 {
	if d.on < 0.001 {
		return 1
	}
	return min(1, d.used/d.on)
}

// Look takes what it used of a time, of 1, for how long it was on, and how much it could have used meanwhile.
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

// Uses is which part of a time it is expected to use.
func (d *Demand) Uses(gone, on, could time.Duration) float64 {
	if gone <= 0 {
		return 0
	}
	return min(d.Part()*float64(on), float64(could)) / float64(gone)
}

// Rival is one of those at work on a GPU.
type Rival struct {
	Weight float64
	Wants  float64 // of the GPU, while it is on
	May    float64 // of the GPU, over a time; 1: whatever it gets
	Off    bool
}

// Levels is what each of those who are on gets of the GPU: a part by its weight, and what others leave of theirs.
func Levels(all []Rival) []float64 {
	levels, settled := make([]float64, len(all)), make([]bool, len(all))
	free := 1.0
	for range all {
		weights, again := 0.0, false
		for i, r := range all {
			if !r.Off && !settled[i] {
				weights += r.Weight
			}
		}
		for i, r := range all {
			if r.Off || settled[i] || weights == 0 {
				continue
			}
			if levels[i] = free * r.Weight / weights; r.Wants < levels[i] {
				levels[i], settled[i], again = r.Wants, true, true
			}
		}
		if !again {
			break
		}
		free = 1
		for i := range all {
			if settled[i] {
				free -= levels[i]
			}
		}
		free = max(0, free)
	}
	return levels
}

// Could is what each would get that always had work.
func Could(all []Rival) []float64 {
	could := Levels(all)
	for i, r := range all {
		if r.Wants > could[i] { // it has less than it asks for
			continue
		}
		eager := slices.Clone(all)
		eager[i].Wants = 1
		could[i] = Levels(eager)[i]
	}
	return could
}

// Parts is for which part of a period each is to be on, so that none has more than it may: all are on at first, and as one goes off the others get more.
func Parts(all []Rival) []float64 {
	all = slices.Clone(all)
	parts, left := make([]float64, len(all)), make([]float64, len(all))
	for i, r := range all {
		parts[i], left[i] = 1, r.May
	}
	for at := 0.0; at < 1; {
		levels, next := Levels(all), 1-at
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

// together has those who would be put off at nearly the same time be so at once.
func together(parts []float64) {
	order := make([]int, 0, len(parts))
	for i, part := range parts {
		if part < 1 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case parts[a] < parts[b]:
			return -1
		case parts[a] > parts[b]:
			return 1
		}
		return 0
	})
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
