/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a step with and without user namespaces can do, by every way to ask the kernel for one. Each attempt
 * is a child's, since one that succeeds changes the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

#define SYS_CLONE3 435 /* everywhere */
#define X32_BIT 0x40000000L

static int plain_unshare(void)
{
	return unshare(CLONE_NEWUSER) == 0 ? 0 : errno;
}

static int with_others(void)
{
	return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) == 0 ? 0 : errno;
}

static int error_of(long rc)
{
	return rc >= 0 ? 0 : errno;
}

/* A child of a child, which ends at once. */
static int ended(long pid)
{
	if (pid == 0)
		_exit(0);
	return error_of(pid);
}

static int plain_clone(void)
{
	return ended(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
}

static int newer_clone(void)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	} arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	return ended(syscall(SYS_CLONE3, &arguments, sizeof(arguments)));
}

static int own = -1; /* the user namespace we are in; the kernel itself refuses that with EINVAL */

static int enter(void)
{
	return setns(own, CLONE_NEWUSER) == 0 ? 0 : errno;
}

static int enter_without_saying_so(void)
{
	return setns(own, 0) == 0 ? 0 : errno;
}

#ifdef __x86_64__
static int as_x32(void)
{
	return error_of(syscall(SYS_unshare | X32_BIT, CLONE_NEWUSER));
}

static int by_interrupt(long number, long first, long second)
{
	long rc;

	__asm__ volatile("int $0x80"
			 : "=a"(rc)
			 : "a"(number), "b"(first), "c"(second)
			 : "memory", "r8", "r9", "r10", "r11");
	return rc < 0 ? (int)-rc : 0;
}

static int as_i386(void)
{
	return by_interrupt(310, CLONE_NEWUSER, 0);
}

static int enter_as_i386(void)
{
	return by_interrupt(346, own, CLONE_NEWUSER);
}

static int newer_clone_as_i386(void)
{
	return by_interrupt(SYS_CLONE3, 0, 0);
}
#endif

struct way {
	const char *name;
	int (*try)(void); /* 0 or errno */
	int denied;
};

static const struct way ways[] = {
	{"unshare", plain_unshare, EPERM},
	{"unshare with others", with_others, EPERM},
	{"clone", plain_clone, EPERM},
	{"clone3", newer_clone, ENOSYS},
	{"setns", enter, EPERM},
	{"setns of any kind", enter_without_saying_so, EPERM},
#ifdef __x86_64__
	{"x32", as_x32, EPERM},
	{"i386", as_i386, EPERM},
	{"setns of i386", enter_as_i386, EPERM},
	{"clone3 of i386", newer_clone_as_i386, ENOSYS},
#endif
};

#define WAY_COUNT (sizeof(ways) / sizeof(ways[0]))
#define NOT_THERE 250 /* the kernel ends a program that asks in this way */

static int outcome(const struct way *way)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(way->try());
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : NOT_THERE;
}

static void *nothing(void *unused)
{
	return unused;
}

/* What has nothing to do with them goes on. */
static void check_the_rest(void)
{
	pthread_t thread;
	int status, here = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
	pid_t child = fork();

	if (child == 0)
		_exit(7);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
	CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(strstr(read_text("/proc/self/status"), "NoNewPrivs:\t0"));
	if (geteuid() == 0)
		CHECK(unshare(CLONE_NEWUTS) == 0 && setns(here, CLONE_NEWUTS) == 0);
	close(here);
}

static void become_the_user(void)
{
	CHECK(setgroups(0, NULL) == 0 && setgid(host.uid) == 0 && setuid(host.uid) == 0);
}

static int denied_to_a_task(void)
{
	CHECK(loaded.task_init_privileged(NULL, 0, NULL) == 0);
	for (int user = 0; user < 2; user++) {
		if (user)
			become_the_user();
		check_the_rest();
		for (size_t i = 0; i < WAY_COUNT; i++) {
			int got = outcome(&ways[i]);
			/* There is no other answer of a kernel that knows no i386. */
			if (got != ways[i].denied && !(got == NOT_THERE && strstr(ways[i].name, "i386"))) {
				fprintf(stderr, "    %s: %d\n", ways[i].name, got);
				return 1;
			}
		}
	}
	return 42;
}

static int allowed_to_a_task(void)
{
	CHECK(loaded.task_init_privileged(NULL, 0, NULL) == 0);
	become_the_user();
	check_the_rest();
	CHECK(outcome(&ways[0]) == 0 && outcome(&ways[2]) == 0 && outcome(&ways[3]) == 0);
	return 42;
}

static void start(const char *isolation, const char *more)
{
	own_machine();
	grant_more = more;
	grant(5, isolation, NULL);
	own = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	loaded = start_step(5, 0);
	CHECK(own >= 0 && loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(host.log, "");
}

static void a_step_has_user_namespaces(void)
{
	start("strict", "");
	CHECK(run_in_child(allowed_to_a_task) == 42);
}

static void a_step_has_no_user_namespaces(void)
{
	start("strict", "\"deny_user_namespaces\": true,");
	CHECK(run_in_child(denied_to_a_task) == 42);
	CHECK(run_in_child(denied_to_a_task) == 42); /* its second task */
	check_the_rest();			     /* slurmstepd, which runs the user's task epilog */
	CHECK(outcome(&ways[0]) == EPERM);
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
	CHECK(exists(in_folder("run/jobs/5/usage.json")));
	SAME(host.log, "");
}

/* Who can take off what is preloaded needs none. */
static void preloads_alone_deny_nothing(void)
{
	start("preload", "\"deny_user_namespaces\": true,");
	CHECK(run_in_child(allowed_to_a_task) == 42);
}

const struct test_case userns_cases[] = {
	{"a step has user namespaces", a_step_has_user_namespaces, true},
	{"a step has no user namespaces", a_step_has_no_user_namespaces, true},
	{"preloads alone deny nothing", preloads_alone_deny_nothing, true},
	{0},
};
