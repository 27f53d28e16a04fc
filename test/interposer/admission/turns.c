/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Slices of one GPU beside each other: their shares and their turns. Each job has processes of its own,
 * on the simulated driver and with kernels of known length. */
#include "slices.h"

#include <sys/syscall.h>

static void pair(unsigned a_percent, unsigned a_us, unsigned b_percent, unsigned b_us, uint64_t for_ns)
{
	struct step a = slice_make(1, a_percent, 0), b = slice_make(2, b_percent, 0);
	struct worker *both[2] = {worker_start(&a, a_us, 1), worker_start(&b, b_us, 1)};

	check_shares(both, (unsigned[]){a_percent * 10, b_percent * 10}, 2, for_ns, "pair");
	worker_end(both[0]);
	worker_end(both[1]);
}

static void thirty_and_seventy(void)
{
	pair(30, 1000, 70, 1000, 1000 * MS);
}

static void half_and_half(void)
{
	pair(50, 1000, 50, 1000, 1000 * MS);
}

static void short_kernels_beside_long_ones(void)
{
	pair(50, 1000, 50, 40000, 2000 * MS);
}

static void thirty_beside_long_kernels(void)
{
	pair(30, 1000, 70, 40000, 2000 * MS);
}

static void processes_of_a_job_share(void)
{
	struct step step = slice_make(3, 30, 0);

	for (unsigned count = 1; count <= 8; count *= 2) {
		struct worker *worker[8];
		unsigned got[8], sum = 0;

		for (unsigned i = 0; i < count; i++)
			worker[i] = worker_start(&step, 1000, 1);
		for (int try = 0; try < 20 && sum < 280; try++) {
			sum = 0;
			shares_of(worker, count, 1500 * MS, got);
			for (unsigned i = 0; i < count; i++)
				sum += got[i];
			CHECK(sum <= 320);
		}
		CHECK(sum >= 280);
		for (unsigned i = 0; i < count; i++)
			worker_end(worker[i]);
	}
}

static void a_step_has_less_than_its_job(void)
{
	struct step first = slice_make(4, 60, 0), second = step_make(first.limits->job_id, 1, 1000, 1000);
	struct worker *both[2];

	second.limits->device[0].sm_percent = 20;
	second.limits->device[0].job_sm_percent = 60;
	strcpy(second.limits->pages_dir, first.limits->pages_dir);
	both[0] = worker_start(&second, 1000, 1);
	check_shares(both, (unsigned[]){200}, 1, 800 * MS, "step");
	both[1] = worker_start(&first, 1000, 1);
	{
		unsigned got[2], sum = 0;

		for (int try = 0; try < 20 && sum < 580; try++) {
			shares_of(both, 2, 800 * MS, got);
			sum = got[0] + got[1];
			CHECK(sum <= 620 && got[0] <= 220);
		}
		CHECK(sum >= 580);
	}
	worker_end(both[0]);
	worker_end(both[1]);
}

static void a_changed_share_holds_at_once(void)
{
	struct step step = slice_make(5, 20, 0);
	struct worker *worker = worker_start(&step, 1000, 1);
	static const unsigned percents[] = {20, 60, 10, 0, 30};

	for (unsigned i = 0; i < 5; i++) {
		slice_change(&step, percents[i]);
		if (percents[i] != 0)
			check_shares(&worker, (unsigned[]){percents[i] * 10}, 1, 1000 * MS, "changed");
		else
			CHECK(worker_waits_for(worker, launches_of(worker) + 300, 5000 * MS));
	}
	worker_end(worker);
}

static void what_nobody_uses_is_shared_out(void)
{
	struct step a = slice_make(6, 30, VGPU_ELASTIC), b = slice_make(7, 50, 0);
	struct worker *left = worker_start(&a, 1000, 1), *right;
	unsigned got[2];

	shares_of(&left, 1, 500 * MS, got);
	for (int try = 0; try < 20 && got[0] < 900; try++)
		shares_of(&left, 1, 500 * MS, got);
	CHECK(got[0] >= 900);
	/* The owner has its share from its first second on. */
	right = worker_start(&b, 1000, 1);
	check_shares((struct worker *[]){right}, (unsigned[]){500}, 1, 1000 * MS, "owner");
	got[0] = got[1] = 0;
	for (int try = 0; try < 20 && got[0] + got[1] < 950; try++)
		shares_of((struct worker *[]){left, right}, 2, 700 * MS, got);
	CHECK_WITHIN(got[0] + got[1], 950, 1020);
	worker_end(left);
	worker_end(right);
}

static void takes_all(struct worker *worker)
{
	unsigned got = 0;

	for (int try = 0; try < 20 && got < 900; try++)
		shares_of(&worker, 1, 500 * MS, &got);
	CHECK(got >= 900);
}

/* It looks whether the board is still the same ten times a second. */
static void sees_another_board(struct worker *worker)
{
	unsigned got = 1000;

	for (int try = 0; try < 50 && got >= 600; try++)
		shares_of(&worker, 1, 200 * MS, &got);
	CHECK(got < 600);
}

/* Jobs of a release whose claims are laid out otherwise cannot say that they want their time. */
static void beside_strangers_each_keeps_to_its_share(void)
{
	struct step a = slice_make(20, 30, VGPU_ELASTIC), b = slice_make(21, 50, 0);
	struct worker *one = worker_start(&a, 1000, 1);

	takes_all(one);
	slice_post_as(&b, VGPU_VGPUD_VERSION + 1);
	check_shares(&one, (unsigned[]){300}, 1, 1000 * MS, "strangers");
	slice_post(&b);
	takes_all(one);
	slice_replace_board(&a, VGPU_VGPUD_VERSION + 1);
	sees_another_board(one);
	check_shares(&one, (unsigned[]){300}, 1, 1000 * MS, "foreign board");
	slice_replace_board(&a, VGPU_VGPUD_VERSION);
	takes_all(one);
	slice_replace_board(&a, VGPU_VGPUD_VERSION + 1);
	worker_end(one);
	one = worker_start(&a, 1000, 1);
	check_shares(&one, (unsigned[]){300}, 1, 1000 * MS, "begun beside a foreign board");
	worker_end(one);
}

static void a_slice_without_a_cap_waits_for_nobody(void)
{
	struct step a = slice_make(8, 100, 0), b = slice_make(9, 0, 0);
	struct worker *worker[2] = {worker_start(&a, 1000, 20), worker_start(&b, 1000, 20)};

	CHECK(worker_waits_for(worker[0], 100, 5000 * MS) && worker_waits_for(worker[1], 100, 5000 * MS));
	for (int i = 0; i < 2; i++)
		CHECK_IS(worker_thread(worker[i], "vgpu-poller"), 0);
	CHECK_IS(a.ledger->waited_ns[0] + b.ledger->waited_ns[0], 0);
	worker_end(worker[0]);
	worker_end(worker[1]);
}

/* How long the thread wants to run at once, as sched_getattr(2) has it; 0: Linux does not tell (before
 * 6.12). */
static uint64_t runs_at_once_ns(pid_t thread)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime_ns, deadline_ns, period_ns;
	} schedule = {0};

	CHECK_IS(syscall(SYS_sched_getattr, thread, &schedule, sizeof(schedule), 0), 0);
	return schedule.runtime_ns;
}

/* It does not wait for others that run for long, and the program's own threads stay as they were. */
static void a_capped_one_has_a_prompt_keeper(void)
{
	struct step a = slice_make(10, 50, 0);
	struct worker *worker = worker_start(&a, 1000, 1);
	uint64_t others = runs_at_once_ns(getpid());
	pid_t poller;

	CHECK(worker_waits_for(worker, 20, 5000 * MS));
	poller = worker_thread(worker, "vgpu-poller");
	CHECK(poller != 0);
	CHECK_IS(runs_at_once_ns(worker->pid), others);
	CHECK(others == 0 || runs_at_once_ns(poller) < others);
	worker_end(worker);
}

static void a_child_of_who_has_launched_goes_its_own_way(void)
{
	struct step step = slice_make(15, 50, 0);
	CUfunction function;
	int status = 0;

	step_enter(&step);
	cuda_begin(0);
	function = busy_kernel();
	for (int i = 0; i < 30; i++)
		busy(function, 1000, NULL);
	for (int i = 0; i < 5; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			CUcontext context = NULL;

			alarm(10);
			_exit(cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != NULL);
		}
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
		busy(function, 1000, NULL);
	}
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

static void many_streams_have_one_share(void)
{
	struct step step = slice_make(16, 40, 0);
	struct worker *worker = worker_start(&step, 1000, 200);

	check_shares(&worker, (unsigned[]){400}, 1, 3000 * MS, "200 streams");
	worker_end(worker);
}

/* Kernels that come one at a time, in turn in four streams. */
static void short_kernels_of_several_streams(void)
{
	struct step step = slice_make(17, 25, 0);
	struct worker *worker = worker_start(&step, 100, 4);
	unsigned got = 0;

	for (int try = 0; try < 20 && got < 180; try++) {
		shares_of(&worker, 1, 700 * MS, &got);
		CHECK(got <= 300);
	}
	CHECK(got >= 180);
	worker_end(worker);
}

static void exit_with_work_in_flight(void)
{
	struct step a = slice_make(18, 50, 0), b = slice_make(19, 50, 0);
	struct worker *left = worker_start(&a, 1000, 1);

	for (int i = 0; i < 5; i++) {
		struct worker *right = worker_start(&b, 5000, 3);

		CHECK(worker_waits_for(right, 3, 5000 * MS));
		worker_end(right);
	}
	check_shares(&left, (unsigned[]){500}, 1, 1000 * MS, "after exits");
	worker_end(left);
}

/* A process that answers a request of 5 ms every 25 ms and never waits for its results. */
static pid_t answers_requests(const struct step *step)
{
	CUfunction function;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	alarm(SLICES_WORKS_S);
	step_enter(step);
	cuda_begin(0);
	function = busy_kernel();
	for (uint64_t at = now_ns();; at += 25 * MS) {
		while (now_ns() < at)
			nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
		busy(function, 5000, NULL);
	}
}

static bool becomes_interactive(const struct vgpu_claim *claim, uint64_t at_most_ns)
{
	for (uint64_t since = now_ns(); now_ns() - since < at_most_ns; sched_yield()) {
		if (__atomic_load_n(&claim->interactive_us, __ATOMIC_RELAXED) != 0)
			return true;
	}
	return false;
}

/* Requests find turns that are short, from the first one on if those before found them so. */
static void who_rests_again_and_again_is_interactive(void)
{
	struct step a = slice_make(20, 50, 0), b = slice_make(21, 50, 0);
	struct worker *batch = worker_start(&a, 1000, 1);
	const struct vgpu_claim *claim = &slice_claims(&b)->claim[0];
	pid_t pid = answers_requests(&b);

	CHECK(becomes_interactive(claim, 20000 * MS));
	CHECK_IS(slice_claims(&a)->claim[0].interactive_us, 0);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	pid = answers_requests(&b);
	for (uint64_t used = b.ledger->busy_ns[0], since = now_ns();
	     b.ledger->busy_ns[0] - used < 100 * MS && now_ns() - since < 20000 * MS; sched_yield()) {
		if (__atomic_load_n(&claim->interactive_us, __ATOMIC_RELAXED) == 0) {
			CHECK(!"another process of the slice is judged by itself");
			break;
		}
	}
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	worker_end(batch);
}

int main(void)
{
	gpus(0);
	CASE_OF_TIME(thirty_and_seventy);
	CASE_OF_TIME(half_and_half);
	CASE_OF_TIME(short_kernels_beside_long_ones);
	CASE_OF_TIME(thirty_beside_long_kernels);
	CASE_OF_TIME(processes_of_a_job_share);
	CASE_OF_TIME(a_step_has_less_than_its_job);
	CASE_OF_TIME(a_changed_share_holds_at_once);
	CASE_OF_TIME(what_nobody_uses_is_shared_out);
	CASE_OF_TIME(beside_strangers_each_keeps_to_its_share);
	CASE_OF_TIME(a_slice_without_a_cap_waits_for_nobody);
	CASE(a_capped_one_has_a_prompt_keeper);
	CASE(a_child_of_who_has_launched_goes_its_own_way);
	CASE_OF_TIME(many_streams_have_one_share);
	CASE_OF_TIME(short_kernels_of_several_streams);
	CASE(exit_with_work_in_flight);
	CASE_OF_TIME(who_rests_again_and_again_is_interactive);
	return summary();
}
