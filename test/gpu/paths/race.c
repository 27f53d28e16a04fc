/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Eight processes of four threads race in random sizes, half of them are killed, and then the last
 * granule must be there for one that comes after them. */
#include "parts.h"
#include "witness.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define RACERS 8
#define THREADS 4
#define RACE_MS 3000
#define HELD 16
#define MOST_MIB 192

static CUdeviceptr held;
static uint64_t held_bytes;
static char note[96];

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- one racer ---- */

struct lane {
	pthread_t thread;
	uint64_t until_ms;
	unsigned int seed;
	unsigned int got, refused;
	int error; /* the first that is not out-of-memory */
};

static void *drive(void *argument)
{
	struct lane *lane = argument;
	CUdeviceptr block[HELD] = { 0 };
	CUcontext context;
	int error = (int)cu.cuDevicePrimaryCtxRetain(&context, the_device);

	if (error == 0)
		error = (int)cu.cuCtxSetCurrent(context);
	while (error == 0 && now_ms() < lane->until_ms) {
		unsigned int i = (unsigned int)rand_r(&lane->seed) % HELD;

		if (block[i] != 0) {
			error = (int)cu.cuMemFree_v2(block[i]);
			block[i] = 0;
			continue;
		}
		error = (int)cu.cuMemAlloc_v2(&block[i],
					      (uint64_t)rand_r(&lane->seed) % (MOST_MIB * MIB) + 1);
		if (error == CUDA_ERROR_OUT_OF_MEMORY) {
			lane->refused++;
			block[i] = 0;
			error = 0;
		} else if (error == 0) {
			lane->got++;
		}
	}
	for (int i = 0; i < HELD; i++)
		if (block[i] != 0 && error == 0)
			error = (int)cu.cuMemFree_v2(block[i]);
	lane->error = error;
	return NULL;
}

int race_racer(unsigned int threads, unsigned int ms)
{
	struct lane lane[THREADS] = { 0 };
	uint64_t give_up_ms = now_ms() + ms;
	int error = cuda_load() ? (int)cuda_begin(&the_device) : PATH_BROKEN;

	/* The others may have left no room for another context just now. */
	while (error == CUDA_ERROR_OUT_OF_MEMORY && now_ms() < give_up_ms) {
		usleep(20000);
		error = (int)cuda_begin(&the_device);
	}
	if (error == CUDA_ERROR_OUT_OF_MEMORY)
		return 0;
	if (error != 0 || threads > THREADS)
		return 100;
	for (unsigned int i = 0; i < threads; i++) {
		lane[i].until_ms = now_ms() + ms;
		lane[i].seed = (unsigned int)getpid() * 31 + i;
		if (pthread_create(&lane[i].thread, NULL, drive, &lane[i]) != 0)
			return 101;
	}
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(lane[i].thread, NULL);
		if (lane[i].error != 0 && error == 0)
			error = lane[i].error;
	}
	return error == 0 ? 0 : 102;
}

/* ---- the race ---- */

static int start(void)
{
	uint64_t begin = now_ms();
	pid_t racer[RACERS];
	int failed = 0;
	struct witness_said said;

	for (int i = 0; i < RACERS; i++) {
		racer[i] = fork();
		if (racer[i] == 0) {
			char ms[16];

			snprintf(ms, sizeof(ms), "%d", RACE_MS);
			execl(the_program, the_program, "--racer", ms, (char *)NULL);
			_exit(127);
		}
		if (racer[i] < 0)
			return PATH_BROKEN;
	}
	/* Somewhere in the middle of it: contexts take their time. */
	while (now_ms() - begin < RACE_MS)
		usleep(10000);
	for (int i = 0; i < RACERS / 2; i++)
		kill(racer[i], SIGKILL);
	for (int i = 0; i < RACERS; i++) {
		int status;

		if (waitpid(racer[i], &status, 0) == racer[i] && i >= RACERS / 2 &&
		    (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
			failed++;
	}
	said = witness_ask(getpid());
	if (said.session_peak != WITNESS_UNKNOWN)
		snprintf(note, sizeof(note), "all together at most %.1f MiB; %d racers failed",
			 (double)said.session_peak / MIB, failed);
	else
		snprintf(note, sizeof(note), "%d racers failed", failed);
	return 0;
}

/* ---- starting at once ---- */

#define MOST_STARTERS 16
#define HELD_MS 3000
#define NO_ROOM 3

/* Makes a context when the pipe ends, and keeps it for a while. */
int race_starter(int fd)
{
	char byte;
	int error = cuda_load() ? (int)cu.cuInit(0) : PATH_BROKEN;

	if (read(fd, &byte, 1) < 0 || error != 0)
		return 100;
	error = (int)cuda_begin(&the_device);
	if (error == 0)
		usleep(HELD_MS * 1000);
	return error == 0 ? 0 : error == CUDA_ERROR_OUT_OF_MEMORY ? NO_ROOM : 100;
}

/* This process has no context yet, so nobody of the job knows what one costs. */
static int start_together(int count)
{
	int started = 0, failed = 0, go[2];
	pid_t pid[MOST_STARTERS];
	struct witness_said said;

	if (pipe(go) != 0)
		return PATH_BROKEN;
	for (int i = 0; i < count; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			char fd[16];

			close(go[1]);
			snprintf(fd, sizeof(fd), "%d", go[0]);
			execl(the_program, the_program, "--starter", fd, (char *)NULL);
			_exit(127);
		}
	}
	close(go[0]);
	usleep(1000 * 1000); /* until cuInit is behind them */
	close(go[1]);
	for (int i = 0; i < count; i++) {
		int status = -1;

		if (pid[i] < 0 || waitpid(pid[i], &status, 0) != pid[i] || !WIFEXITED(status) ||
		    (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != NO_ROOM))
			failed++;
		else
			started += WEXITSTATUS(status) == 0;
	}
	said = witness_ask(getpid());
	snprintf(note, sizeof(note), "%d started, %d failed", started, failed);
	if (said.session_peak != WITNESS_UNKNOWN)
		snprintf(note + strlen(note), sizeof(note) - strlen(note), "; all together at most %.1f MiB",
			 (double)said.session_peak / MIB);
	return (int)cuda_begin(&the_device);
}

static int start_8(void)
{
	return start_together(8);
}

static int start_16(void)
{
	return start_together(16);
}

static int take(uint64_t bytes)
{
	held_bytes = bytes;
	return (int)cu.cuMemAlloc_v2(&held, bytes);
}

static void give(void)
{
	cu.cuMemFree_v2(held);
}

static int touch(void)
{
	return touch_bytes(held, held_bytes);
}

struct path race_paths[] = {
	{ .name = "cuMemAlloc after a race of 8 x 4", .granule = GRANULE, .start = start, .take = take, .give = give, .touch = touch, .note = note },
	{ .name = "8 processes starting at once", .granule = GRANULE, .flags = PATH_NO_CONTEXT, .start = start_8, .take = take, .give = give, .touch = touch, .note = note },
	{ .name = "16 processes starting at once", .granule = GRANULE, .flags = PATH_NO_CONTEXT, .start = start_16, .take = take, .give = give, .touch = touch, .note = note },
	{ .name = NULL },
};
