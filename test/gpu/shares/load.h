/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a load was asked to do, and its clock. */
#ifndef VGPU_TEST_LOAD_H
#define VGPU_TEST_LOAD_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define MOST_DEEP 1024
#define MOST_LISTED 1024

struct load_options {
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
	unsigned int beside_us; /* length of kernels that another thread launches into a stream of its own; 0:
				   none */
	unsigned int duty_us;	/* one piece in so many microseconds: a known share of the GPU */
	double loops_per_us;
	const char *page, *pretend;
};
extern struct load_options o;

/* From the command line; an exit status, 0 to go on. */
int options(int argc, char **argv, bool *calibrating);

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void sleep_until(uint64_t ns)
{
	struct timespec when = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

#endif
