/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Credit, meter and averages together on a GPU in virtual time: any program of one process. */
#include "harness.h"
#include "time/share.h"
#include "virtual_job.h"

static const uint32_t percents[] = {1, 10, 25, 30, 50, 75, 90, 99};

/* One thread that launches into several streams. */
static struct virtual_plan any_plan(struct fuzz *f, uint64_t shortest, uint64_t longest)
{
	struct virtual_plan plan = {.percent = percents[fuzz_below(f, 8)], .processes = 1, .threads = 1,
				    .late = fuzz_below(f, 2) ? 0 : 2000, .for_ns = 60 * SECOND};
	struct virtual_thread *thread = &plan.thread[0][0];

	thread->streams = 1 + fuzz_below(f, STREAMS);
	thread->kinds = 1 + fuzz_below(f, KINDS);
	for (uint32_t k = 0; k < KINDS; k++) {
		uint64_t most = shortest;

		while (most < longest && fuzz_below(f, 5) != 0)
			most *= 2;
		thread->length_ns[k] = fuzz_between(f, shortest, most < longest ? most : longest);
	}
	return plan;
}

#define CHECK_AT_MOST(got, most)                                                                                      \
	do {                                                                                                          \
		uint64_t got_ = (got), most_ = (most);                                                                \
		if (got_ > most_) {                                                                                   \
			fprintf(stderr, "%s:%d: %s is %llu us, above %llu us\n", __FILE__, __LINE__, #got,            \
				(unsigned long long)(got_ / US), (unsigned long long)(most_ / US));                   \
			failures++;                                                                                   \
		}                                                                                                     \
	} while (0)

/* There is always work: the share is kept in any second, and used to half a point, and a little of it, in a
 * minute. By estimates alone: what is held back the GPU times in truth (gate/batch.c). */
static void always_work_round(struct fuzz *f)
{
	struct virtual_plan plan = any_plan(f, 10 * US, 40 * MS);
	bool varies = plan.thread[0][0].varies = fuzz_below(f, 2);
	struct virtual_job *job = virtual_job_run(f, &plan);
	uint64_t all = virtual_gpu_busy_ns(&job->gpu, 0, 60000), want = 60 * SECOND * plan.percent / 100, off;

	/* Of kernels that vary a few are timed: their average may be off by a fourth in a second, and by much
	 * less in a minute. One may ride along with another that is as long. Late looks count what was over
	 * before. */
	off = 60 * SECOND / 200 + want / 200 * ((varies ? 8 : 1) + (plan.late != 0 ? 2 : 0)) +
	      job->longest_ns;
	CHECK_AT_MOST(virtual_gpu_busiest_second_ns(&job->gpu, 60000),
		      SECOND * plan.percent / 100 + (varies ? want / 60 / 4 : 0) + VGPU_SHARE_BURST_NS +
			      2 * job->longest_ns + job->latest_ns + off / 60);
	CHECK_AT_MOST(all, want + off);
	CHECK_AT_MOST(want, all + off);
	virtual_job_say(job);
}

static void shares_are_kept_and_used(void)
{
	fuzz_rounds(24, always_work_round);
}

/* Kernels of up to a second, some of them at once: what they take beyond the share is owed. One may ride
 * along with another. */
static void long_kernels_round(struct fuzz *f)
{
	struct virtual_plan plan = any_plan(f, MS, SECOND);
	struct virtual_job *job;

	plan.percent = plan.percent < 10 ? 10 : plan.percent;
	job = virtual_job_run(f, &plan);
	CHECK_AT_MOST(virtual_gpu_busy_ns(&job->gpu, 0, 60000),
		      60 * SECOND * plan.percent / 100 + 300 * MS + 2 * job->longest_ns);
	virtual_job_say(job);
}

static void what_long_kernels_take_is_owed(void)
{
	fuzz_rounds(16, long_kernels_round);
}

/* Kernels that take half of the share and pauses: the controller has no business there. */
static void below_round(struct fuzz *f)
{
	struct virtual_plan plan = any_plan(f, 10 * US, 5 * MS);
	struct virtual_thread *thread = &plan.thread[0][0];
	struct virtual_job *job;

	plan.percent = plan.percent < 10 ? 10 : plan.percent;
	plan.for_ns = 10 * SECOND;
	thread->below = thread->waits = true;
	thread->streams = 1;
	job = virtual_job_run(f, &plan);
	/* Until the kernels are known each of them is waited for, and one that ended before a late look is
	 * owed until then. */
	CHECK_AT_MOST(job->held_ns, thread->kinds * (3 * 5 * MS + job->latest_ns) +
					    2 * job->latest_ns * 100 / plan.percent);
	virtual_job_say(job);
}

static void a_program_below_its_share_is_not_held_back(void)
{
	fuzz_rounds(24, below_round);
}

/* What is counted is what was used. */
static void counted_round(struct fuzz *f)
{
	struct virtual_plan plan = any_plan(f, 10 * US, 40 * MS);
	struct virtual_job *job;
	uint64_t all, off;

	plan.together = fuzz_below(f, 2);
	plan.percent = 99; /* at work all the time */
	plan.for_ns = 20 * SECOND;
	job = virtual_job_run(f, &plan);
	all = virtual_gpu_busy_ns(&job->gpu, 0, 20000);
	off = all / 50 + job->longest_ns + job->latest_ns;
	CHECK_AT_MOST(job->counted_ns, 20 * SECOND);
	/* Short kernels count as if they ran one after the other where nobody saw that they ran at once. */
	CHECK_AT_MOST(job->counted_ns, all + off + (plan.together ? all / 25 : 0));
	CHECK_AT_MOST(all, job->counted_ns + off + VGPU_SHARE_BURST_NS);
	virtual_job_say(job);
}

static void what_is_counted_was_used(void)
{
	fuzz_rounds(24, counted_round);
}

int main(void)
{
	CASE(shares_are_kept_and_used);
	CASE(what_long_kernels_take_is_owed);
	CASE(a_program_below_its_share_is_not_held_back);
	CASE(what_is_counted_was_used);
	return summary();
}
