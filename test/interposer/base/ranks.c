/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * That the order of locks is looked at: in a child each, which ends where it is not kept. */
#ifndef VGPU_TEST_RANKS
#define VGPU_TEST_RANKS
#endif
#include "harness.h"

#include "base/futex.h"

#include <sys/resource.h>
#include <sys/wait.h>

static uint32_t blocks, granules, account;

static void in_order(void)
{
	vgpu_mutex_lock(&blocks, VGPU_RANK_BLOCKS);
	vgpu_mutex_lock(&granules, VGPU_RANK_GRANULES);
	vgpu_brief_lock(&account, VGPU_RANK_ACCOUNT);
	vgpu_mutex_unlock(&blocks);
	vgpu_brief_unlock(&account);
	vgpu_brief_lock(&account, VGPU_RANK_ACCOUNT);
	vgpu_brief_unlock(&account);
	vgpu_mutex_unlock(&granules);
}

static void in_reverse(void)
{
	vgpu_mutex_lock(&granules, VGPU_RANK_GRANULES);
	vgpu_mutex_lock(&blocks, VGPU_RANK_BLOCKS);
}

static void two_of_one_rank(void)
{
	vgpu_mutex_lock(&granules, VGPU_RANK_GRANULES);
	vgpu_mutex_lock(&blocks, VGPU_RANK_GRANULES);
}

static void of_another_thread(void)
{
	blocks = 1;
	vgpu_mutex_lock(&granules, VGPU_RANK_GRANULES);
	vgpu_mutex_unlock(&blocks);
}

/* Whether a child that does so ends well, and what it says. */
static bool ends_well(void (*what)(void), char *said, size_t room)
{
	int end[2], status = 0;
	ssize_t length;
	pid_t child;

	CHECK_IS(pipe(end), 0);
	child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		dup2(end[1], STDERR_FILENO);
		what();
		_exit(0);
	}
	close(end[1]);
	length = read(end[0], said, room - 1);
	said[length > 0 ? length : 0] = '\0';
	close(end[0]);
	CHECK_IS(waitpid(child, &status, 0), child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void locks_in_order_are_taken(void)
{
	char said[256];

	CHECK(ends_well(in_order, said, sizeof(said)));
	CHECK(strcmp(said, "") == 0);
}

static void locks_out_of_order_end_the_test_and_say_both_ranks(void)
{
	char said[256], ranks[256];

	CHECK(!ends_well(in_reverse, said, sizeof(said)));
	snprintf(ranks, sizeof(ranks), "vgpu: a lock is taken of rank %d with one of rank %d held\n",
		 VGPU_RANK_BLOCKS, VGPU_RANK_GRANULES);
	CHECK(strcmp(said, ranks) == 0);
	CHECK(!ends_well(two_of_one_rank, said, sizeof(said)));
	snprintf(ranks, sizeof(ranks), "vgpu: a lock is taken of rank %d with one of rank %d held\n",
		 VGPU_RANK_GRANULES, VGPU_RANK_GRANULES);
	CHECK(strcmp(said, ranks) == 0);
}

static void a_lock_that_one_has_not_is_not_given_back(void)
{
	char said[256];

	CHECK(!ends_well(of_another_thread, said, sizeof(said)));
	CHECK(strstr(said, "was not taken") != NULL);
}

int main(void)
{
	gpus(0);
	CASE(locks_in_order_are_taken);
	CASE(locks_out_of_order_end_the_test_and_say_both_ranks);
	CASE(a_lock_that_one_has_not_is_not_given_back);
	return summary();
}
