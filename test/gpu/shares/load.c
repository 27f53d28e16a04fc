/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Work of known length for a GPU. Does nothing until "go" comes on its input, and again from "stop"
 * on. Every piece that is done gets its time on a page that whoever started this maps (page.h), so
 * that done work can be counted from outside, exactly and at any time. */
#include "driver.h"
#include "page.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_DEEP 1024
#define MOST_LISTED 1024
#define BESIDE_EVERY_US 200u
#define CALIBRATE_US 20000u
#define CALIBRATE_LOOPS 8000000u

static struct {
	unsigned int us;	/* length of a kernel */
	unsigned int kernels;	/* that make a piece of work */
	unsigned int gap_us;	/* that the host computes between kernels */
	unsigned int deep;	/* pieces that are submitted and not done, at most */
	unsigned int streams, blocks;
	unsigned int copy_mib, fill_mib, move_mib; /* from the host, and within the device */
	unsigned int row_bytes; /* of what is copied within the device; 0: all in one */
	unsigned int list;	/* of so many copies within the device; 0: none */
	unsigned int call_us;	/* that the host works for the stream, before the kernels */
	bool chain;		/* each piece waits for the one before it, which is in another stream */
	unsigned int rate;	/* pieces per second by the clock; 0: as fast as it goes */
	unsigned int beside_us; /* length of kernels that another thread launches into a stream of its own; 0: none */
	unsigned int duty_us;	/* one piece in so many microseconds: a known share of the GPU */
	double loops_per_us;
	const char *page, *pretend;
} o = { .us = 1000, .kernels = 1, .deep = 8, .streams = 1, .blocks = 132 };

struct piece {
	CUevent event;
	uint64_t from_ns;
};

static struct page *page;
static struct piece ring[MOST_DEEP];
static uint64_t submitted, done;
static bool going, ended;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static CUcontext context;
static CUfunction spin;
static CUstream stream[MOST_STREAMS];
static CUdeviceptr device_block, other_block;
static void *host_block;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
	struct timespec when = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

static int launch(CUstream on, unsigned int us, unsigned int loops)
{
	void *params[] = { &us, &loops };

	return (int)cu.cuLaunchKernel(spin, o.blocks, 1, 1, 32, 1, 1, 0, on, params, NULL);
}

static void work_on_host(void *unused)
{
	uint64_t until = now_ns() + o.call_us * 1000u;

	(void)unused;
	while (now_ns() < until)
		;
}

static int move_rows(CUstream on)
{
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = other_block, .srcPitch = o.row_bytes,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = device_block, .dstPitch = o.row_bytes,
		.WidthInBytes = o.row_bytes / 2, /* half of each, so that they are rows */
		.Height = ((size_t)o.move_mib << 20) / o.row_bytes,
	};

	return (int)cu.cuMemcpy2DAsync_v2(&copy, on);
}

static int move_list(CUstream on)
{
	CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	CUdeviceptr to[MOST_LISTED], from[MOST_LISTED];
	size_t bytes[MOST_LISTED], first = 0, each = ((size_t)o.move_mib << 20) / o.list;

	for (unsigned int i = 0; i < o.list; i++) {
		to[i] = device_block + i * each;
		from[i] = other_block + i * each;
		bytes[i] = each;
	}
	return (int)cu.cuMemcpyBatchAsync_v2(to, from, bytes, o.list, &attributes, &first, 1, on);
}

static int move(CUstream on)
{
	if (o.list != 0)
		return move_list(on);
	return o.row_bytes != 0 ? move_rows(on)
				: (int)cu.cuMemcpyDtoDAsync_v2(device_block, other_block, (size_t)o.move_mib << 20, on);
}

static int submit(CUstream on, CUevent event, CUevent last)
{
	int error = o.chain && last != NULL ? (int)cu.cuStreamWaitEvent(on, last, 0) : 0;

	if (o.call_us != 0 && error == 0)
		error = (int)cu.cuLaunchHostFunc(on, work_on_host, NULL);
	if (o.copy_mib != 0 && error == 0)
		error = (int)cu.cuMemcpyHtoDAsync_v2(device_block, host_block, (size_t)o.copy_mib << 20, on);
	if (o.fill_mib != 0 && error == 0)
		error = (int)cu.cuMemsetD8Async(device_block, 0, (size_t)o.fill_mib << 20, on);
	if (o.move_mib != 0 && error == 0)
		error = move(on);
	for (unsigned int k = 0; k < o.kernels && error == 0; k++) {
		uint64_t until = now_ns() + o.gap_us * 1000u;

		error = launch(on, o.us, (unsigned int)(o.us * o.loops_per_us));
		while (o.gap_us != 0 && now_ns() < until)
			;
	}
	return error != 0 ? error : (int)cu.cuEventRecord(event, on);
}

/* Waits for every piece in order and writes down when it was done. */
static void *collect(void *unused)
{
	cu.cuCtxSetCurrent(context);
	for (;;) {
		struct piece piece;
		uint64_t end;

		pthread_mutex_lock(&mutex);
		while (done == submitted && !ended)
			pthread_cond_wait(&changed, &mutex);
		piece = ring[done % o.deep];
		if (done == submitted) {
			pthread_mutex_unlock(&mutex);
			return unused;
		}
		pthread_mutex_unlock(&mutex);
		cu.cuEventSynchronize(piece.event);
		end = now_ns();
		page_add(page, end, end - piece.from_ns);
		pthread_mutex_lock(&mutex);
		done++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&mutex);
	}
}

static void *listen_to_input(void *unused)
{
	char line[64];

	while (fgets(line, sizeof(line), stdin) != NULL) {
		pthread_mutex_lock(&mutex);
		going = strcmp(line, "go\n") == 0;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&mutex);
	}
	pthread_mutex_lock(&mutex);
	ended = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
	return unused;
}

/* Short kernels all the time, none of which is a piece. */
static void *beside(void *unused)
{
	CUstream own;
	bool go_on = cu.cuCtxSetCurrent(context) == 0 && cu.cuStreamCreate(&own, STREAM_NON_BLOCKING) == 0;

	while (go_on) {
		bool launches;

		pthread_mutex_lock(&mutex);
		launches = going;
		go_on = !ended;
		pthread_mutex_unlock(&mutex);
		if (launches && launch(own, o.beside_us, (unsigned int)(o.beside_us * o.loops_per_us)) != 0)
			break;
		sleep_until(now_ns() + BESIDE_EVERY_US * 1000u);
	}
	return unused;
}

/* Until it may submit the next piece; false: it is time to end. */
static bool wait_for_turn(void)
{
	bool go_on;

	pthread_mutex_lock(&mutex);
	while (!ended && (!going || submitted - done >= o.deep)) {
		if (!going && submitted == done && !page->idle)
			__atomic_store_n(&page->idle, 1, __ATOMIC_RELEASE);
		pthread_cond_wait(&changed, &mutex);
	}
	__atomic_store_n(&page->idle, 0, __ATOMIC_RELEASE);
	go_on = !ended;
	pthread_mutex_unlock(&mutex);
	return go_on;
}

/* A limiter that is right by construction, to try the measurement itself: P percent of the time,
 * one piece at a time. */
static uint64_t pretend_wait(uint64_t free_ns)
{
	unsigned int percent = pretended_percent(o.pretend);
	uint64_t now = now_ns();

	if (percent == 0)
		return now;
	if (free_ns < now)
		free_ns = now;
	sleep_until(free_ns);
	return free_ns + (uint64_t)o.us * o.kernels * 100000u / percent;
}

static int work(void)
{
	uint64_t next_ns = 0, free_ns = 0, step_ns = 0;
	int error = 0;

	if (o.rate != 0)
		step_ns = 1000000000u / o.rate;
	if (o.duty_us != 0)
		step_ns = o.duty_us * 1000u;
	while (error == 0 && wait_for_turn()) {
		struct piece *piece = &ring[submitted % o.deep];

		if (step_ns != 0) {
			uint64_t now = now_ns();

			/* After a stop the clock starts again; a piece that comes late counts from when it was due. */
			next_ns = now > next_ns + 1000000000u ? now : next_ns + step_ns;
			sleep_until(next_ns);
		}
		if (o.pretend != NULL)
			free_ns = pretend_wait(free_ns);
		piece->from_ns = step_ns != 0 ? next_ns : now_ns();
		error = submit(stream[submitted % o.streams], piece->event,
			       submitted != 0 ? ring[(submitted - 1) % o.deep].event : NULL);
		pthread_mutex_lock(&mutex);
		if (error == 0)
			submitted++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&mutex);
	}
	return error;
}

/* Loops of the kernel per microsecond, at the clock that a busy GPU has. */
static double calibrate(void)
{
	double best = 0;

	for (int i = 0; i < 20; i++) {
		uint64_t from = now_ns();
		double loops;

		if (launch(stream[0], CALIBRATE_US, CALIBRATE_LOOPS) != 0 || cu.cuStreamSynchronize(stream[0]) != 0)
			return 0;
		loops = CALIBRATE_LOOPS / ((double)(now_ns() - from) / 1000.0);
		best = loops > best ? loops : best;
	}
	return best;
}

static int prepare(void)
{
	unsigned int most_mib = o.copy_mib > o.fill_mib ? o.copy_mib : o.fill_mib;
	int error = driver_begin(&context, &spin);

	if (error == 0 && o.list != 0 && cu.cuMemcpyBatchAsync_v2 == NULL)
		error = CUDA_ERROR_NOT_FOUND;
	most_mib = most_mib > o.move_mib ? most_mib : o.move_mib;
	for (unsigned int i = 0; i < o.streams && error == 0; i++)
		error = (int)cu.cuStreamCreate(&stream[i], STREAM_NON_BLOCKING);
	for (unsigned int i = 0; i < o.deep && error == 0; i++)
		error = (int)cu.cuEventCreate(&ring[i].event, EVENT_DISABLE_TIMING);
	if (o.copy_mib != 0 && error == 0)
		error = (int)cu.cuMemHostAlloc(&host_block, (size_t)o.copy_mib << 20, 0);
	if (most_mib != 0 && error == 0)
		error = (int)cu.cuMemAlloc_v2(&device_block, (size_t)most_mib << 20);
	if (o.move_mib != 0 && error == 0)
		error = (int)cu.cuMemAlloc_v2(&other_block, (size_t)o.move_mib << 20);
	return error;
}

static int usage(void)
{
	fputs("usage: load --page FILE --loops N [--us N] [--kernels N] [--gap US] [--deep N] [--streams N] [--blocks N]\n"
	      "            [--copy MIB] [--fill MIB] [--move MIB [--rows BYTES | --list N]] [--call US] [--chain]\n"
	      "            [--rate PER-SECOND | --duty US] [--beside US] [--pretend LIMITS]\n"
	      "       load --calibrate\n", stderr);
	return 2;
}

static int options(int argc, char **argv, bool *calibrating)
{
	static const struct option known[] = {
		{ "page", required_argument, NULL, 'p' },    { "loops", required_argument, NULL, 'l' },
		{ "us", required_argument, NULL, 'u' },	     { "kernels", required_argument, NULL, 'k' },
		{ "gap", required_argument, NULL, 'g' },     { "deep", required_argument, NULL, 'd' },
		{ "streams", required_argument, NULL, 's' }, { "blocks", required_argument, NULL, 'b' },
		{ "copy", required_argument, NULL, 'c' },    { "rate", required_argument, NULL, 'r' },
		{ "duty", required_argument, NULL, 'D' },    { "pretend", required_argument, NULL, 'P' },
		{ "fill", required_argument, NULL, 'f' },    { "move", required_argument, NULL, 'm' },
		{ "rows", required_argument, NULL, 'R' },    { "list", required_argument, NULL, 'L' },
		{ "call", required_argument, NULL, 'H' },    { "chain", no_argument, NULL, 'W' },
		{ "beside", required_argument, NULL, 'B' },
		{ "calibrate", no_argument, NULL, 'C' },     { NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		unsigned int number = optarg != NULL ? (unsigned int)strtoul(optarg, NULL, 10) : 0;

		switch (c) {
		case 'p': o.page = optarg; break;
		case 'P': o.pretend = optarg; break;
		case 'l': o.loops_per_us = atof(optarg); break;
		case 'u': o.us = number; break;
		case 'k': o.kernels = number; break;
		case 'g': o.gap_us = number; break;
		case 'd': o.deep = number; break;
		case 's': o.streams = number; break;
		case 'b': o.blocks = number; break;
		case 'c': o.copy_mib = number; break;
		case 'f': o.fill_mib = number; break;
		case 'm': o.move_mib = number; break;
		case 'R': o.row_bytes = number; break;
		case 'L': o.list = number; break;
		case 'H': o.call_us = number; break;
		case 'W': o.chain = true; break;
		case 'r': o.rate = number; break;
		case 'B': o.beside_us = number; break;
		case 'D': o.duty_us = number; break;
		case 'C': *calibrating = true; break;
		default: return usage();
		}
	}
	if (o.deep == 0 || o.deep > MOST_DEEP || o.list > MOST_LISTED || o.streams == 0 || o.streams > MOST_STREAMS)
		return usage();
	return *calibrating || (o.page != NULL && o.loops_per_us > 0) ? 0 : usage();
}

int main(int argc, char **argv)
{
	pthread_t collector, listener, other;
	bool calibrating = false;
	int error = options(argc, argv, &calibrating);

	if (error != 0)
		return error;
	error = prepare();
	if (error == 0 && calibrating)
		return printf("%.3f\n", calibrate()) < 0;
	if (error == 0)
		page = page_map(o.page);
	if (error != 0 || page == NULL) {
		printf("error: the load does not start: %d\n", error);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	if (pthread_create(&listener, NULL, listen_to_input, NULL) != 0 || pthread_create(&collector, NULL, collect, NULL) != 0)
		return 1;
	if (o.beside_us != 0 && pthread_create(&other, NULL, beside, NULL) != 0)
		return 1;
	error = work();
	if (error != 0)
		printf("error: a launch failed: %d\n", error);
	fflush(stdout);
	_exit(error != 0);
}
