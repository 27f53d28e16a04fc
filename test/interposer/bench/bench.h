/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What one intercepted call costs beside the direct one: the same program calls both, in turns, on
 * the simulated driver. Prints medians. */
#ifndef VGPU_TEST_BENCH_H
#define VGPU_TEST_BENCH_H

#include "harness.h"

#include <dlfcn.h>
#include <time.h>

#define BENCH_ROUNDS 31
#define BENCH_CALLS 2000

typedef CUresult bench_lookup(void *library, const char *name, void **function);

struct bench_row {
	const char *name;
	void (*call)(void);
	void (*between)(void); /* what is done between two calls, and not measured; then reading the clock is
				  part of each */
};

static inline CUresult bench_ours(void *library, const char *name, void **function)
{
	*function = dlsym(library, name);
	return *function == NULL;
}

/* The simulated driver looks names up for itself: what it finds are its own functions. */
static inline bench_lookup *bench_direct(void *library)
{
	bench_lookup *direct;

	*(void **)&direct = dlsym(library, "cuSimDlsym");
	return direct;
}

static inline double bench_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline double bench_ns(const struct bench_row *row)
{
	double since = bench_clock_ns(), took = 0;

	for (int i = 0; i < BENCH_CALLS; i++) {
		if (row->between != NULL) {
			row->between();
			since = bench_clock_ns();
		}
		row->call();
		if (row->between != NULL)
			took += bench_clock_ns() - since;
	}
	return (row->between != NULL ? took : bench_clock_ns() - since) / BENCH_CALLS;
}

static inline int bench_ascending(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static inline void bench_head(const char *what)
{
	printf("%-36s %12s %12s %12s %8s\n", what, "direct ns", "wrapped ns", "added ns", "ratio");
}

/* use: has the rows call the functions that are looked up so. */
static inline void bench_print(const struct bench_row *row, void (*use)(bench_lookup *lookup, void *library),
			       void *library)
{
	double plain[BENCH_ROUNDS], ours[BENCH_ROUNDS];

	for (int i = 0; i < BENCH_ROUNDS; i++) {
		use(bench_direct(library), library);
		plain[i] = bench_ns(row);
		use(bench_ours, library);
		ours[i] = bench_ns(row);
	}
	qsort(plain, BENCH_ROUNDS, sizeof(double), bench_ascending);
	qsort(ours, BENCH_ROUNDS, sizeof(double), bench_ascending);
	printf("%-36s %12.1f %12.1f %12.1f %8.2f\n", row->name, plain[BENCH_ROUNDS / 2],
	       ours[BENCH_ROUNDS / 2], ours[BENCH_ROUNDS / 2] - plain[BENCH_ROUNDS / 2],
	       ours[BENCH_ROUNDS / 2] / plain[BENCH_ROUNDS / 2]);
}

#endif
