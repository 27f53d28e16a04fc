/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What launches took before: one average for each kernel with its shape, and for each graph. Kept in
 * a table of fixed size, where a newcomer drives out who had its place. */
#ifndef VGPU_TIME_COST_H
#define VGPU_TIME_COST_H

#include <stdbool.h>
#include <stdint.h>

#define VGPU_COSTS 4096u

struct vgpu_cost {
	uint64_t key;
	uint32_t average_ns;	/* 0: not known */
	uint16_t samples;	/* up to 1000 */
	uint16_t outliers;	/* in a row */
	int32_t since_sample;	/* launches since one was timed, less those for which it is not worth it */
	uint16_t put_off;	/* launches that were not timed beside others, since one was */
	uint16_t in_vain;	/* times in a row that one was timed beside others after all */
	uint32_t brief_ns; /* average of those that are over before they are seen to be at work, if there were
			      such lately */
} __attribute__((aligned(32))); /* a launch looks at one of them, which then is in one line of the cache */

/* The average of a kernel over all its shapes. */
#define VGPU_ANY_SHAPE UINT64_MAX

/* The key of a kernel or graph with its shape; never 0. */
uint64_t vgpu_cost_key(uint64_t what, uint64_t shape);

/* What is over so soon is mostly not seen to be at work. */
#define VGPU_BRIEF_NS 200000u
/* What launches took that were not seen to be at work: less than others where one key takes now so long and
 * now so long. 0: not known. */
uint64_t vgpu_cost_unseen_ns(const struct vgpu_cost *cost);

/* The place of the key, made empty if it was another one's. */
struct vgpu_cost *vgpu_cost_of(struct vgpu_cost table[VGPU_COSTS], uint64_t key);

/* Notes one launch. True when this one should be timed: often enough that an average of kernels
 * whose length changes is fair, seldom enough that it costs nothing. roughly: it need not be known so
 * well. */
bool vgpu_cost_due(struct vgpu_cost *cost, bool roughly);

/* The same for a launch that is not to be timed, where there is enough of the share: how long it takes. 0,
 * and nothing is noted, when that is not known or more than most_ns, or it is due. */
uint64_t vgpu_cost_leased(struct vgpu_cost table[VGPU_COSTS], uint64_t key, uint64_t most_ns);

/* What a launch took on the GPU. Forgotten when the key has lost its place meanwhile. */
void vgpu_cost_learn(struct vgpu_cost table[VGPU_COSTS], uint64_t key, uint64_t took_ns);

/* A launch is due while other work is on the GPU, or in its stream: whether to wait for a better moment. Such
 * a launch costs the program more than others, so this is tried less often where that moment does not come,
 * and the more often it was tried the later comes the next one. */
bool vgpu_cost_put_off(struct vgpu_cost *cost, bool roughly);
/* It came. */
void vgpu_cost_alone(struct vgpu_cost *cost, bool roughly);
/* What it took then after all: seldom believed where it is more than before. */
void vgpu_cost_learn_beside(struct vgpu_cost table[VGPU_COSTS], uint64_t key, uint64_t took_ns);

/* The same as seen from outside, which may be too much: stands until one is timed. */
void vgpu_cost_guess(struct vgpu_cost table[VGPU_COSTS], uint64_t key, uint64_t took_ns);

/* Right behind another one a kernel is prepared while that one runs, and so takes less than alone. How much
 * less is known from launches that ran in a row: what is known of it (0: nothing yet) after so many that were
 * expected to take so long together, with that taken off, and took so long. */
uint32_t vgpu_cost_saved(uint32_t saved, uint32_t launches, uint64_t expected_ns, uint64_t took_ns);
/* Whether what these took says anything of that. */
bool vgpu_cost_tells_saved(uint32_t launches, uint64_t expected_ns);
/* That in nanoseconds. */
uint32_t vgpu_cost_saved_ns(uint32_t saved);

#endif
