/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How often the driver is asked about what is in flight, and that the answers are counted for all they tell
 * of. */
#include "slices.h"

static struct step begin(uint32_t job)
{
	struct step step = step_with_share(job, 90);

	cuda_begin(0);
	return step;
}

static unsigned int times_asked(void)
{
	unsigned int elapsed = 0, reached = 0;

	CHECK_IS(cuSimAsked("cuEventElapsedTime", &elapsed), CUDA_SUCCESS);
	CHECK_IS(cuSimAsked("cuEventQuery", &reached), CUDA_SUCCESS);
	return elapsed + reached;
}

/* So many questions of a hundred kernels at most, fewer where the poller is late. */
static void check_asked(unsigned int before, unsigned kernels, unsigned percent)
{
	unsigned int asked = times_asked() - before;

	if (asked > kernels * percent / 100)
		fprintf(stderr, "asked %u times about %u kernels\n", asked, kernels), failures++;
}

/* One question tells of the two of these kernels that are let go at once; and what is timed now and then is
 * held back with the others, so that there is nothing to ask until it is let go. */
static void what_is_let_go_together_is_asked_about_together(void)
{
	struct step step = begin(1);
	CUfunction function = busy_kernel();
	unsigned int before;
	uint64_t before_ns, us;

	for (int i = 0; i < 300; i++)
		busy(function, 1003, NULL);
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
	before = times_asked();
	before_ns = step_busy_ns(&step);
	for (int i = 0; i < 900; i++)
		busy(function, 1003, NULL);
	us = step_busy_ns_when_seen(&step, before_ns, 883 * MS, 5000 * MS) / 1000;
	check_asked(before, 900, 150);
	CHECK_WITHIN(us, 900 * 1003 - 20000, 900 * 1003 + 30000);
}

/* Each of these kernels has markers of its own; what lies in front of one that was reached is not looked at
 * one by one. */
static void a_marker_that_was_reached_tells_of_those_in_front(void)
{
	struct step step = begin(2);
	CUfunction function = busy_kernel();
	CUstream stream[2];
	CUevent done[2];
	unsigned int before;
	uint64_t before_ns, us;

	for (int s = 0; s < 2; s++)
		CHECK(cuStreamCreate(&stream[s], 1) == CUDA_SUCCESS &&
		      cuEventCreate(&done[s], 2) == CUDA_SUCCESS);
	for (int i = 0; i < 20; i++) {
		busy(function, 50, stream[0]);
		CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
	}
	before = times_asked();
	before_ns = step_busy_ns(&step);
	for (int i = 0; i < 8000; i++) {
		busy(function, 50, stream[i % 2]);
		CHECK_IS(cuEventRecord(done[i % 2], stream[i % 2]), CUDA_SUCCESS);
		CHECK_IS(cuStreamWaitEvent(stream[1 - i % 2], done[i % 2], 0), CUDA_SUCCESS);
	}
	us = step_busy_ns_when_seen(&step, before_ns, 390 * MS, 5000 * MS) / 1000;
	check_asked(before, 8000, 150);
	CHECK_WITHIN(us, 8000 * 50 - 10000, 8000 * 50 + 40000);
}

static void launch_every_ms(CUfunction function, int kernels)
{
	uint64_t since = now_ns();

	for (int i = 1; i <= kernels; i++) {
		busy(function, 300, NULL);
		while (now_ns() < since + (uint64_t)i * MS)
			__asm__ volatile("");
	}
}

/* Where nobody else has to do with the GPU there is no need to: some 160 looks a second instead of 560. The
 * least of some times: it is looked at more often for a while whenever this machine's other work is in the
 * way. */
static void a_share_that_is_not_used_up_is_looked_at_seldom(void)
{
	struct step step = begin(3);
	CUfunction function = busy_kernel();
	unsigned int begun, before, least = UINT32_MAX;
	uint64_t before_ns;

	launch_every_ms(function, 300);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	before_ns = step_busy_ns(&step);
	begun = times_asked();
	for (int i = 0; i < 40; i++) {
		before = times_asked();
		launch_every_ms(function, 100);
		least = times_asked() - before < least ? times_asked() - before : least;
	}
	CHECK_WITHIN(least, 0, 42);
	CHECK(times_asked() - begun >= 40 * 5);
	CHECK_WITHIN(step_busy_ns_when_seen(&step, before_ns, 1160 * MS, 5000 * MS) / MS, 1140, 1260);
}

int main(void)
{
	gpus(0);
	CASE_OF_TIME(what_is_let_go_together_is_asked_about_together);
	CASE_OF_TIME(a_marker_that_was_reached_tells_of_those_in_front);
	CASE_OF_TIME(a_share_that_is_not_used_up_is_looked_at_seldom);
	return summary();
}
