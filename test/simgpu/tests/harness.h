/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each test runs in a process of its own with a fresh simulated node in $SIMGPU_DIR. */
#ifndef SIMGPU_TESTS_HARNESS_H
#define SIMGPU_TESTS_HARNESS_H

#include "sim.h"
#include "sim_types.h"

#include <sys/types.h>

#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) CUresult symbol params;
#include "api/cuda.def"
#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) CUresult symbol params;
#define VGPU_NVML(kind, symbol, params, args, ...) nvmlReturn_t symbol params;
#include "extra.def"
#define VGPU_NVML(kind, symbol, params, args, ...) nvmlReturn_t symbol params;
#include "api/nvml.def"

struct test {
	const char *name;
	void (*run)(void);
	struct test *next;
};

void test_register(struct test *test);

#define TEST(NAME)                                                               \
	static void NAME(void);                                                  \
	__attribute__((constructor)) static void register_##NAME(void)           \
	{                                                                        \
		static struct test test = { .name = #NAME, .run = NAME };        \
		test_register(&test);                                            \
	}                                                                        \
	static void NAME(void)

/* Ends the test when the two numbers differ. */
#define EQ(GOT, WANT)                                                                       \
	do {                                                                                \
		long long got_ = (long long)(GOT), want_ = (long long)(WANT);               \
		if (got_ != want_)                                                          \
			test_fail(__FILE__, __LINE__, #GOT, got_, want_);                   \
	} while (0)
#define OK(CALL) EQ(CALL, 0)
#define TRUE(CONDITION) EQ((CONDITION) != 0, 1)

__attribute__((noreturn)) void test_fail(const char *file, int line, const char *what, long long got,
					 long long want);
/* What a failure in a table of rows is printed with. */
void test_row(const char *format, ...) __attribute__((format(printf, 1, 2)));
__attribute__((noreturn)) void test_skip(const char *why);

/* Lines of simgpu.conf; before anything of the driver is called. */
void configure(const char *text);
const char *node_dir(void);

/* A second process of the node. It runs fn, and the two pass words to each other. */
struct peer {
	pid_t pid;
	int in, out;
};

struct peer peer_start(void (*fn)(struct peer *));
void peer_say(struct peer *peer, uint64_t word);
uint64_t peer_hear(struct peer *peer);
int peer_wait(struct peer *peer);  /* its exit status */
void peer_kill(struct peer *peer); /* with SIGKILL; it stays unreaped */

/* cuInit, and the primary context of device 0 made current. */
CUcontext start_cuda(void);
uint64_t free_mib(void);
uint64_t used_mib(void); /* of device 0, as NVML says */

#endif
