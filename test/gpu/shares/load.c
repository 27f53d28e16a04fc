/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Work of known length for a GPU. Does nothing until "go" comes on its input, and again from "stop"
 * on. Every piece that is done gets its time on a page that whoever started this maps (page.h), so
 * that done work can be counted from outside, exactly and at any time. */
#include "load.h"

#include "page.h"
#include "pieces.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BESIDE_EVERY_US 200u

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

/* Waits for every piece in order and writes down when it was done. */
static void *collect(void *unused)
{
	pieces_thread();
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
	bool go_on = pieces_thread() == 0 && cu.cuStreamCreate(&own, STREAM_NON_BLOCKING) == 0;

	while (go_on) {
		bool launches;

		pthread_mutex_lock(&mutex);
		launches = going;
		go_on = !ended;
		pthread_mutex_unlock(&mutex);
		if (launches && pieces_launch(own, o.beside_us) != 0)
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

			/* After a stop the clock starts again; a piece that comes late counts from when it
			 * was due. */
			next_ns = now > next_ns + 1000000000u ? now : next_ns + step_ns;
			sleep_until(next_ns);
		}
		if (o.pretend != NULL)
			free_ns = pretend_wait(free_ns);
		piece->from_ns = step_ns != 0 ? next_ns : now_ns();
		error = piece_submit(submitted, piece->event,
				     submitted != 0 ? ring[(submitted - 1) % o.deep].event : NULL);
		pthread_mutex_lock(&mutex);
		if (error == 0)
			submitted++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&mutex);
	}
	return error;
}

int main(int argc, char **argv)
{
	pthread_t collector, listener, other;
	bool calibrating = false;
	int error = options(argc, argv, &calibrating);

	if (error != 0)
		return error;
	error = pieces_prepare();
	for (unsigned int i = 0; i < o.deep && error == 0; i++)
		error = (int)cu.cuEventCreate(&ring[i].event, EVENT_DISABLE_TIMING);
	if (error == 0 && calibrating)
		return printf("%.3f\n", pieces_calibrate()) < 0;
	if (error == 0)
		page = page_map(o.page);
	if (error != 0 || page == NULL) {
		printf("error: the load does not start: %d\n", error);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	if (pthread_create(&listener, NULL, listen_to_input, NULL) != 0 ||
	    pthread_create(&collector, NULL, collect, NULL) != 0)
		return 1;
	if (o.beside_us != 0 && pthread_create(&other, NULL, beside, NULL) != 0)
		return 1;
	error = work();
	if (error != 0)
		printf("error: a launch failed: %d\n", error);
	fflush(stdout);
	_exit(error != 0);
}
