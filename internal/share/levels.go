// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "slices"

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
