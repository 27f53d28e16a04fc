// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

// Weights are what slices with these caps, in percent, count for on one GPU. A slice without a cap (0 or 100) counts for its part of what those with a cap leave
// over, however little that is: shares are kept for those that have one. Turns by the library go by the same (interposer/time/turn.c).
func Weights(percents []int) []float64 {
	capped, uncapped := 0, 0
	for _, p := range percents {
		if isCapped(p) {
			capped += p
		} else {
			uncapped++
		}
	}
	weights := make([]float64, len(percents))
	for i, p := range percents {
		if isCapped(p) {
			weights[i] = float64(p)
		} else {
			weights[i] = float64(max(0, 100-capped)) / float64(uncapped)
		}
	}
	return weights
}

func isCapped(percent int) bool { return percent > 0 && percent < 100 }
