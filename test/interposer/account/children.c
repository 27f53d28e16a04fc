/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What is free when a process has ended: all of it at once where it was waited for, and nothing while a child
 * that it forked lives, which has its descriptors of the driver (H200, driver 580.159). */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define LIMIT_MIB 128u
#define HELD_MIB 100u
#define ROUNDS 5

static struct step step;
static int said[2]; /* a pipe from the holders */

static uint64_t free_bytes(void)
{
	size_t free_bytes = 0, total_bytes;

	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	return free_bytes;
}

static void say(pid_t child)
{
	CHECK_IS(write(said[1], &child, sizeof(child)), sizeof(child));
}

static void wait_for_a_word(int fd)
{
	char byte;

	CHECK_IS(read(fd, &byte, 1), 1);
}

static void sleep_on(void)
{
	for (;;)
		pause();
}

static void begin(uint32_t job)
{
	gpus(0);
	step = step_make(job, 0, LIMIT_MIB, LIMIT_MIB);
	CHECK_IS(pipe(said), 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1); /* a holder's child can be waited for when the holder has ended */
}

/* A process that takes memory when it is asked to, and then does something. */
struct holder {
	pid_t pid, child;
	int word[2];
};

static void hold(const struct holder *holder, void (*then)(const struct holder *holder))
{
	CUdeviceptr a;

	wait_for_a_word(holder->word[0]);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, HELD_MIB * MIB), CUDA_SUCCESS);
	then(holder);
	sleep_on();
}

static struct holder make_holder(void (*then)(const struct holder *holder))
{
	struct holder holder = {0};

	CHECK_IS(pipe(holder.word), 0);
	holder.pid = fork();
	if (holder.pid == 0)
		hold(&holder, then);
	return holder;
}

static void give_a_word(const struct holder *holder)
{
	CHECK_IS(write(holder->word[1], "", 1), 1);
}

static void let_take(struct holder *holder)
{
	give_a_word(holder);
	CHECK_IS(read(said[0], &holder->child, sizeof(holder->child)), sizeof(holder->child));
}

static void end(pid_t pid)
{
	CHECK(pid > 0 && kill(pid, SIGKILL) == 0);
	CHECK_IS(waitpid(pid, NULL, 0), pid);
}

static void has_no_child(const struct holder *holder)
{
	(void)holder;
	say(0);
}

static void has_a_child(const struct holder *holder)
{
	pid_t child = fork();

	(void)holder;
	if (child == 0)
		sleep_on();
	say(child);
}

static void has_a_child_and_exits(const struct holder *holder)
{
	has_a_child(holder);
	wait_for_a_word(holder->word[0]);
	_exit(0);
}

static void has_a_child_with_another_program(const struct holder *holder)
{
	int ready[2];
	char byte;
	pid_t child;

	(void)holder;
	CHECK_IS(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		execl("/bin/sleep", "sleep", "1000", NULL);
		_exit(1);
	}
	close(ready[1]);
	CHECK_IS(read(ready[0], &byte, 1), 0); /* the exec has closed it */
	say(child);
}

static void has_a_child_and_becomes_another_program(const struct holder *holder)
{
	pid_t child = fork();
	char number[16];

	(void)holder;
	if (child == 0)
		sleep_on();
	snprintf(number, sizeof(number), "%d", (int)child);
	dup2(said[1], 1);
	execl("/proc/self/exe", "self", "again", number, NULL);
	_exit(1);
}

/* The process of that name has nothing on the GPU any more, but its child keeps what it had. */
static int again(pid_t child)
{
	said[1] = 1;
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	say(child);
	sleep_on();
	return 0;
}

static void what_a_child_held_is_free_when_it_was_waited_for(void)
{
	struct holder holder[ROUNDS];

	begin(1);
	for (int i = 0; i < ROUNDS; i++)
		holder[i] = make_holder(has_no_child);
	cuda_begin(0);
	for (int i = 0; i < ROUNDS; i++) {
		let_take(&holder[i]);
		CHECK_IS(free_bytes(), (LIMIT_MIB - HELD_MIB) * MIB);
		end(holder[i].pid);
		CHECK_IS(free_bytes(), LIMIT_MIB * MIB);
	}
}

/* Who waited for it was waited for. */
static void what_a_childs_child_held_is_free_as_well(void)
{
	struct holder between;
	pid_t pid;

	begin(2);
	CHECK_IS(pipe(between.word), 0);
	pid = fork();
	if (pid == 0) {
		int outside = said[1];
		struct holder holder;

		CHECK_IS(pipe(said), 0);
		holder = make_holder(has_no_child);
		let_take(&holder);
		said[1] = outside;
		say(0);
		wait_for_a_word(between.word[0]);
		end(holder.pid);
		_exit(0);
	}
	CHECK_IS(read(said[0], &between.child, sizeof(between.child)), sizeof(between.child));
	cuda_begin(0);
	CHECK_IS(free_bytes(), (LIMIT_MIB - HELD_MIB) * MIB);
	give_a_word(&between);
	CHECK_IS(waitpid(pid, NULL, 0), pid);
	CHECK_IS(free_bytes(), LIMIT_MIB * MIB);
}

/* As the driver has it, whose figure is asked outside of the library. */
static void check_held(uint64_t bytes)
{
	CUdeviceptr a;

	CHECK_IS(driver_held_bytes(0), bytes);
	CHECK_IS(free_bytes(), LIMIT_MIB * MIB - bytes);
	CHECK_IS(cuMemAlloc_v2(&a, LIMIT_MIB * MIB - bytes + 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(step_slots_bytes(&step), bytes);
	CHECK_IS(cuMemAlloc_v2(&a, LIMIT_MIB * MIB - bytes), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
}

static void a_child_keeps_what_its_killed_parent_had(void)
{
	struct holder holder;

	library_quiet();
	begin(3);
	holder = make_holder(has_a_child);
	let_take(&holder);
	end(holder.pid);
	cuda_begin(0);
	check_held(HELD_MIB * MIB);
	end(holder.child);
	check_held(0);
}

static void a_child_keeps_what_its_parent_had_that_has_exited(void)
{
	struct holder holder;

	library_quiet();
	begin(4);
	holder = make_holder(has_a_child_and_exits);
	let_take(&holder);
	give_a_word(&holder);
	CHECK_IS(waitpid(holder.pid, NULL, 0), holder.pid);
	cuda_begin(0);
	check_held(HELD_MIB * MIB);
	end(holder.child);
	check_held(0);
}

static void another_program_keeps_nothing(void)
{
	struct holder holder;

	library_quiet();
	begin(5);
	holder = make_holder(has_a_child_with_another_program);
	let_take(&holder);
	end(holder.pid);
	cuda_begin(0);
	check_held(0);
	end(holder.child);
}

static void a_child_keeps_what_its_parent_had_that_is_another_program(void)
{
	struct holder holder;

	library_quiet();
	begin(6);
	holder = make_holder(has_a_child_and_becomes_another_program);
	let_take(&holder);
	cuda_begin(0);
	check_held(HELD_MIB * MIB);
	end(holder.pid);
	check_held(HELD_MIB * MIB);
	end(holder.child);
	check_held(0);
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "again") == 0)
		return again((pid_t)atoi(argv[2]));
	gpus(0);
	CASE(what_a_child_held_is_free_when_it_was_waited_for);
	CASE(what_a_childs_child_held_is_free_as_well);
	CASE(a_child_keeps_what_its_killed_parent_had);
	CASE(a_child_keeps_what_its_parent_had_that_has_exited);
	CASE(another_program_keeps_nothing);
	CASE(a_child_keeps_what_its_parent_had_that_is_another_program);
	return summary();
}
