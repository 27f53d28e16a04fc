/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SMALL_NODE "devices=1\nmem_mib=1000\ncontext_mib=100\n"

static void hold_300_mib(struct peer *peer)
{
	CUdeviceptr p;

	start_cuda();
	OK(cuMemAlloc_v2(&p, 300 * SIM_MIB));
	peer_say(peer, p);
	peer_hear(peer);
}

TEST(memory_is_shared_between_processes_and_their_addresses_differ)
{
	struct peer peer;
	CUdeviceptr p;

	configure(SMALL_NODE);
	peer = peer_start(hold_300_mib);
	start_cuda();
	CUdeviceptr theirs = peer_hear(&peer);

	EQ(free_mib(), 500);
	EQ(cuMemAlloc_v2(&p, 502 * SIM_MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc_v2(&p, 500 * SIM_MIB));
	TRUE(p != theirs);
	EQ(cuMemFree_v2(theirs), CUDA_ERROR_INVALID_VALUE);
	peer_say(&peer, 0);
	OK(peer_wait(&peer));
	EQ(free_mib(), 400);
}

TEST(memory_comes_back_when_its_process_is_killed_also_before_it_is_reaped)
{
	struct peer peer;
	CUdeviceptr p;

	configure(SMALL_NODE);
	peer = peer_start(hold_300_mib);
	start_cuda();
	peer_hear(&peer);
	peer_kill(&peer);
	OK(cuMemAlloc_v2(&p, 900 * SIM_MIB));
	EQ(peer_wait(&peer), 128 + 9);
	EQ(free_mib(), 0);
}

static void touch_24_mib(struct peer *peer)
{
	CUdeviceptr p;

	start_cuda();
	OK(cuMemAllocManaged(&p, 24 * SIM_MIB, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemsetD8_v2(p, 1, 24 * SIM_MIB));
	peer_say(peer, 0);
	peer_hear(peer);
}

TEST(managed_memory_of_all_processes_is_taken_together_in_big_pieces)
{
	struct peer peer[3];
	CUdeviceptr p;

	configure(SMALL_NODE);
	for (int i = 0; i < 3; i++) {
		peer[i] = peer_start(touch_24_mib);
		peer_hear(&peer[i]);
		EQ(used_mib(), 128 + (i + 1) * 100);
	}
	start_cuda();
	OK(cuMemAllocManaged(&p, 57 * SIM_MIB, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemsetD8_v2(p, 1, 57 * SIM_MIB));
	EQ(used_mib(), 256 + 400);
	EQ(free_mib(), 344);
	EQ(cuMemAlloc_v2(&p, 345 * SIM_MIB), CUDA_ERROR_OUT_OF_MEMORY);
	peer_kill(&peer[0]);
	EQ(used_mib(), 128 + 300);
	EQ(peer_wait(&peer[0]), 128 + 9);
	for (int i = 1; i < 3; i++) {
		peer_say(&peer[i], 0);
		OK(peer_wait(&peer[i]));
	}
	EQ(used_mib(), 128 + 100);
}

static struct sim_state *map_own_state(void)
{
	char path[300];
	void *map;
	int fd;

	snprintf(path, sizeof(path), "%s/state", node_dir());
	fd = open(path, O_RDWR | O_CLOEXEC);
	TRUE(fd >= 0);
	map = mmap(NULL, sizeof(struct sim_state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	TRUE(map != MAP_FAILED);
	return map;
}

static void die_in_the_lock(struct peer *peer)
{
	struct sim_state *state = map_own_state();

	OK(pthread_mutex_lock(&state->lock));
	state->gpu[0].used_bytes = state->gpu[0].managed_bytes = 12345; /* half-done work */
	peer_say(peer, 0);
	for (;;)
		pause();
}

static void be_there(struct peer *peer)
{
	start_cuda();
	peer_say(peer, 0);
}

/* Whoever forgets a process may be killed in the middle of it. */
TEST(what_a_half_forgotten_process_had_is_nobodys)
{
	struct sim_state *state;
	struct peer peer;
	size_t own, all;

	configure(SMALL_NODE);
	peer = peer_start(be_there);
	peer_hear(&peer);
	OK(peer_wait(&peer));
	state = map_own_state();
	OK(pthread_mutex_lock(&state->lock));
	for (int i = 0; i < SIM_MAX_PROCS; i++)
		if (!state->proc[i].live)
			state->proc[i].device[0].mem_bytes = 200 * SIM_MIB;
	OK(pthread_mutex_unlock(&state->lock));
	start_cuda();
	OK(cuSimHeld(0, &own, &all));
	EQ(own, 100 * SIM_MIB);
	EQ(all, 100 * SIM_MIB);
}

TEST(a_process_that_dies_holding_the_lock_stops_nobody)
{
	struct peer peer;

	configure(SMALL_NODE);
	start_cuda();
	peer = peer_start(die_in_the_lock);
	peer_hear(&peer);
	peer_kill(&peer);
	EQ(free_mib(), 900);
	EQ(peer_wait(&peer), 128 + 9);
}

static void take_granules(struct peer *peer)
{
	uint64_t got = 0;
	CUdeviceptr p;

	start_cuda();
	peer_say(peer, 0);
	peer_hear(peer);
	while (cuMemAlloc_v2(&p, SIM_GRANULE_BYTES) == CUDA_SUCCESS)
		got++;
	peer_say(peer, got);
	peer_hear(peer);
}

TEST(racing_processes_take_every_granule_and_none_twice)
{
	struct peer peer[4];
	uint64_t sum = 0;

	configure("devices=1\nmem_mib=4096\ncontext_mib=0\n");
	for (int i = 0; i < 4; i++)
		peer[i] = peer_start(take_granules);
	for (int i = 0; i < 4; i++)
		peer_hear(&peer[i]);
	for (int i = 0; i < 4; i++)
		peer_say(&peer[i], 0);
	for (int i = 0; i < 4; i++)
		sum += peer_hear(&peer[i]);
	EQ(sum, 2048);
	EQ(used_mib(), 4096);
	for (int i = 0; i < 4; i++)
		peer_say(&peer[i], 0);
	for (int i = 0; i < 4; i++)
		OK(peer_wait(&peer[i]));
	EQ(used_mib(), 0);
}

static void start_and_stay(struct peer *peer)
{
	peer_hear(peer);
	start_cuda();
	peer_say(peer, 0);
	peer_hear(peer);
}

TEST(processes_that_race_to_make_the_state_file_share_one)
{
	struct peer peer[16];

	configure("devices=1\ncontext_mib=10\n");
	for (int i = 0; i < 16; i++)
		peer[i] = peer_start(start_and_stay);
	for (int i = 0; i < 16; i++)
		peer_say(&peer[i], 0);
	for (int i = 0; i < 16; i++)
		peer_hear(&peer[i]);
	EQ(used_mib(), 160);
	for (int i = 0; i < 16; i++)
		peer_say(&peer[i], 0);
	for (int i = 0; i < 16; i++)
		OK(peer_wait(&peer[i]));
}

static void use_after_fork(struct peer *peer)
{
	CUdeviceptr p;
	int n;

	(void)peer;
	EQ(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
	EQ(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
}

TEST(a_forked_child_cannot_use_its_parents_driver)
{
	struct peer peer;

	configure(SMALL_NODE);
	start_cuda();
	peer = peer_start(use_after_fork);
	OK(peer_wait(&peer));
	EQ(free_mib(), 900);
}

static void become_another_program(struct peer *peer)
{
	CUdeviceptr p;

	(void)peer;
	start_cuda();
	OK(cuMemAlloc_v2(&p, 300 * SIM_MIB));
	OK(dup2(peer->out, 1) - 1);
	execl("/proc/self/exe", "simgpu-test", "--used", (char *)NULL);
	EQ(1, 0);
}

/* `simgpu-test --used` is that other program: it starts CUDA and writes what is used. */
__attribute__((constructor)) static void print_used(int argc, char **argv)
{
	if (argc != 2 || strcmp(argv[1], "--used") != 0)
		return;
	start_cuda();
	uint64_t used = used_mib();

	EQ(write(1, &used, sizeof(used)), sizeof(used));
	_exit(0);
}

static void hold_300_mib_with_a_child(struct peer *peer)
{
	CUdeviceptr p;
	pid_t child;

	start_cuda();
	OK(cuMemAlloc_v2(&p, 300 * SIM_MIB));
	child = fork();
	while (child == 0)
		pause();
	peer_say(peer, (CUdeviceptr)child);
	peer_hear(peer);
}

/* As an H200 does with driver 580.159, and lists the process. */
TEST(what_a_forked_child_has_open_is_kept)
{
	struct peer peer;
	CUdeviceptr p;
	pid_t child;

	configure(SMALL_NODE);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	peer = peer_start(hold_300_mib_with_a_child);
	start_cuda();
	child = (pid_t)peer_hear(&peer);
	peer_kill(&peer);
	EQ(peer_wait(&peer), 128 + 9);
	EQ(free_mib(), 500);
	EQ(cuMemAlloc_v2(&p, 502 * SIM_MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(kill(child, SIGKILL));
	EQ(waitpid(child, NULL, 0), child);
	EQ(free_mib(), 900);
}

TEST(exec_ends_what_the_process_held)
{
	struct peer peer;

	configure(SMALL_NODE);
	peer = peer_start(become_another_program);
	EQ(peer_hear(&peer), 100);
	OK(peer_wait(&peer));
}
