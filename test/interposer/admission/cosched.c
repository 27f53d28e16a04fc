/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * GPUs of one job that work together: one does not begin while the other pauses for what it owes. */
#include "gated.h"

#define DEBT_NS 400000000u
#define KERNEL_US 100u

static CUfunction function;

/* All with one shape. */
static void launch_and_wait(unsigned us)
{
	void *params[] = {&us};

	CHECK_IS(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

/* The step has slices of two GPUs, and a kernel whose length is known on the first. */
static void begin_job(uint32_t job)
{
	gated_step(job, 50, 2);
	gated_cuda();
	function = busy_kernel();
	for (int i = 0; i < 12; i++)
		launch_and_wait(KERNEL_US);
}

static void set(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Whether a launch on the first GPU waits until the second one has paid. */
static bool waits_for_the_other(void)
{
	uint64_t paid_ns = now_ns() + DEBT_NS;

	set(&step.ledger->share_free_at_ns[1], paid_ns);
	launch_and_wait(KERNEL_US);
	return now_ns() > paid_ns - DEBT_NS / 20;
}

static void who_pauses_is_waited_for(void)
{
	begin_job(1);
	set(&step.ledger->late_ns, now_ns());
	CHECK(waits_for_the_other());
}

/* GPUs that work by themselves have their pauses by themselves. */
static void without_late_kernels_nobody_is_waited_for(void)
{
	begin_job(2);
	CHECK(!waits_for_the_other());
	set(&step.ledger->late_ns, now_ns() - 3000000000u);
	CHECK(!waits_for_the_other());
	/* That is garbage. */
	set(&step.ledger->late_ns, now_ns() + 1000000000000u);
	CHECK(!waits_for_the_other());
}

/* It may be waiting for this one. */
static void who_is_at_work_is_not_waited_for(void)
{
	struct vgpu_ledger_slot *other;

	begin_job(3);
	other = &step.ledger->slot[step.ledger->slots_high];
	*other = (struct vgpu_ledger_slot){.state = 1, .pid = getpid()};
	set(&other->inflight_until_ns[1], now_ns() + 100000000000u);
	__atomic_add_fetch(&step.ledger->slots_high, 1, __ATOMIC_RELEASE);
	set(&step.ledger->late_ns, now_ns());
	CHECK(!waits_for_the_other());
	set(&other->inflight_until_ns[1], 0);
	set(&step.ledger->late_ns, now_ns());
	CHECK(waits_for_the_other());
}

/* It never pauses. */
static void who_has_no_share_to_keep_is_not_waited_for(void)
{
	begin_job(4);
	step.limits->device[1].sm_percent = step.limits->device[1].job_sm_percent = 0;
	set(&step.ledger->late_ns, now_ns());
	CHECK(!waits_for_the_other());
}

/* A kernel that takes much longer than it did before. */
static void late_kernels_are_seen(void)
{
	begin_job(5);
	CHECK(step.ledger->late_ns == 0);
	launch_and_wait(200 * KERNEL_US);
	CHECK(step.ledger->late_ns != 0);
}

int main(void)
{
	gpus(0);
	CASE_OF_TIME(who_pauses_is_waited_for);
	CASE_OF_TIME(without_late_kernels_nobody_is_waited_for);
	CASE_OF_TIME(who_is_at_work_is_not_waited_for);
	CASE_OF_TIME(who_has_no_share_to_keep_is_not_waited_for);
	CASE_OF_TIME(late_kernels_are_seen);
	return summary();
}
