/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Who makes its own claims useless does not get out of taking turns. */
#include "refused.h"
#include "slices.h"

static struct step step;
static char path[600];

/* A job whose slice is on the board of its GPU; its claims. */
static const char *begin_on_a_board(void)
{
	gpus(0);
	step = slice_make(1, 0, 0);
	slice_claims_path(&step, path);
	return path;
}

/* The job would take no turns. */
static void own_claims_that_are_cut_are_refused(void)
{
	CHECK_IS(truncate(begin_on_a_board(), 0), 0);
	check_refused("the job's claims cannot be used");
}

static void own_claims_that_others_may_write_are_refused(void)
{
	CHECK_IS(chmod(begin_on_a_board(), 0666), 0);
	check_refused("the job's claims cannot be used");
}

static void own_claims_full_of_garbage_are_refused(void)
{
	struct vgpu_claims *claims;

	begin_on_a_board();
	claims = slice_claims(&step);
	memset(claims, 'x', sizeof(*claims));
	check_refused("the job's claims cannot be used");
}

static void own_claims_of_another_job_are_refused(void)
{
	struct vgpu_claims *claims;

	begin_on_a_board();
	claims = slice_claims(&step);
	claims->job_id++;
	check_refused("the job's claims cannot be used");
}

static void own_claims_that_are_not_there_are_refused(void)
{
	CHECK_IS(unlink(begin_on_a_board()), 0);
	check_refused("the job's claims cannot be used");
}

static void own_claims_of_another_user_are_refused(void)
{
	if (geteuid() != 0) {
		printf("SKIP own_claims_of_another_user_are_refused: only root can give a file away\n");
		return;
	}
	CHECK_IS(chown(begin_on_a_board(), 65534, 65534), 0);
	check_refused("the job's claims cannot be used");
}

/* A board of another layout, or one that had no room for the slice, is not the job's fault. */
static void who_is_on_no_board_needs_no_claims(void)
{
	struct vgpu_board *board;

	CHECK_IS(unlink(begin_on_a_board()), 0);
	snprintf(path, sizeof(path), "%s/%s", step.limits->pages_dir, UUID0);
	board = slices_page(path, sizeof(*board));
	board->slice[0].job_id++;
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
}

static void a_board_that_is_half_written_is_believed(void)
{
	struct vgpu_board *board;

	CHECK_IS(unlink(begin_on_a_board()), 0);
	snprintf(path, sizeof(path), "%s/%s", step.limits->pages_dir, UUID0);
	board = slices_page(path, sizeof(*board));
	board->sequence |= 1;
	check_refused("the job's claims cannot be used");
}

/* The memory limit holds all the same. */
static void without_claims_a_program_runs_when_root_says_so(void)
{
	CUdeviceptr a;

	CHECK_IS(unlink(begin_on_a_board()), 0);
	step.limits->flags = VGPU_FAIL_OPEN;
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 1001 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

/* A program that runs goes no further when its job's claims are hidden from the others. */
static void hidden_while_it_runs_claims_stop_the_launches(void)
{
	struct worker *worker;
	uint32_t before;

	begin_on_a_board();
	step = slice_make(2, 50, 0);
	worker = worker_start(&step, 1000, 1);
	CHECK(worker_waits_for(worker, 20, 5000 * MS));
	slice_claims_path(&step, path);
	for (unsigned i = 0; i < 3; i++) {
		static const mode_t hidden[] = {0600, 0666, 0};

		CHECK_IS(chmod(path, hidden[i]), 0);
		/* What is launched already, and what goes until that is seen. */
		before = launches_of(worker);
		CHECK(!worker_waits_for(worker, before + 300, 2000 * MS));
		before = launches_of(worker);
		CHECK(!worker_waits_for(worker, before + 1, 500 * MS));
		CHECK_IS(chmod(path, 0644), 0);
		CHECK(worker_waits_for(worker, before + 50, 5000 * MS));
	}
	worker_end(worker);
}

static void cut_while_it_runs_claims_end_the_program(void)
{
	struct worker *worker;
	int status = 0;

	begin_on_a_board();
	step = slice_make(2, 50, 0);
	worker = worker_start(&step, 1000, 1);
	CHECK(worker_waits_for(worker, 20, 5000 * MS));
	slice_claims_path(&step, path);
	CHECK_IS(truncate(path, 0), 0);
	CHECK_IS(waitpid(worker->pid, &status, 0), worker->pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

int main(void)
{
	gpus(0);
	CASE(own_claims_that_are_cut_are_refused);
	CASE(own_claims_that_others_may_write_are_refused);
	CASE(own_claims_full_of_garbage_are_refused);
	CASE(own_claims_of_another_job_are_refused);
	CASE(own_claims_that_are_not_there_are_refused);
	CASE(own_claims_of_another_user_are_refused);
	CASE(who_is_on_no_board_needs_no_claims);
	CASE(a_board_that_is_half_written_is_believed);
	CASE(without_claims_a_program_runs_when_root_says_so);
	CASE(cut_while_it_runs_claims_end_the_program);
	CASE(hidden_while_it_runs_claims_stop_the_launches);
	return summary();
}
