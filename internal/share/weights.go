// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

// Weights are what slices count for on one GPU, by their caps in percent. A slice without a cap (0 or 100) counts for its part of what the capped slices
// leave, however little that is: shares are kept for the slices that have one.
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
