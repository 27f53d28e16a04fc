/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "nvml/samples.h"
#include "tuning.h"

/* They come nearly sorted, and are few. */
static void sort(uint64_t *at_us, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		uint64_t one = at_us[i];
		uint32_t to = i;

		for (; to > 0 && at_us[to - 1] > one; to--)
			at_us[to] = at_us[to - 1];
		at_us[to] = one;
	}
}

uint32_t vgpu_samples_taken(uint64_t *at_us, uint32_t count, uint64_t last_us, uint64_t now_us)
{
	uint64_t period_us = UINT64_MAX, window_us, taken;
	uint32_t ends = count > 0;

	sort(at_us, count);
	for (uint32_t i = 1; i < count; i++) {
		uint64_t gap_us = at_us[i] - at_us[i - 1];

		ends += gap_us > 0;
		if (gap_us > 0 && gap_us < period_us)
			period_us = gap_us;
	}
	if (period_us < VGPU_SAMPLE_SHORTEST_US || period_us > VGPU_SAMPLE_LONGEST_US)
		period_us = VGPU_SAMPLE_USUAL_US;
	window_us = last_us < now_us ? now_us - last_us : 0;
	window_us = window_us < VGPU_SAMPLES_KEPT_US ? window_us : VGPU_SAMPLES_KEPT_US;
	taken = (window_us + period_us / 2) / period_us;
	taken = taken > ends ? taken : ends;
	return taken > 0 ? (uint32_t)taken : 1;
}
