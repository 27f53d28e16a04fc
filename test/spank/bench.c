/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the plugin costs its host: medians over fresh processes, each of which loads it once. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

#define RUNS 101

static double microseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static double sbatch_without_options(void)
{
	double start = microseconds();
	struct plugin p = load();
	host.context = S_CTX_ALLOCATOR;
	CHECK(p.init(NULL, 0, NULL) == 0 && p.init_post_opt(NULL, 0, NULL) == 0);
	return microseconds() - start;
}

static double sbatch_with_options(void)
{
	double start = microseconds();
	struct plugin p = load();
	host.context = S_CTX_ALLOCATOR;
	CHECK(p.init(NULL, 0, NULL) == 0);
	CHECK(give("vgpu-mem", "3000", 0) == 0 && give("vgpu-cores", "30", 0) == 0);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	return microseconds() - start;
}

static double step(bool ends)
{
	double start = microseconds();
	struct plugin p = start_step(5, 0);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	double prepared = microseconds();
	if (!ends)
		return prepared - start;
	CHECK(p.exit(NULL, 0, NULL) == 0);
	return microseconds() - prepared;
}

static double step_without_vgpu(void)
{
	mkdir(in_folder("run"), 0755);
	mkdir(in_folder("run/jobs"), 0755);
	write_file(in_folder("run/jobs/5.none"), "");
	return step(false);
}

/* As many as on a node with all of the driver's libraries: CUDA, NVML, and five other ways to the GPU. */
static void more_guards(void)
{
	static char text[4096];
	size_t n = (size_t)snprintf(text, sizeof(text), "\"guards\": [");

	write_file(in_folder("driver/libnvidia-ml.so.580"), "the driver");
	n += (size_t)snprintf(text + n, sizeof(text) - n,
			      "{\"driver\": \"%s\", \"guard\": \"%s\", \"behind\": \"libcuda-slurm-vgpu.so\"},",
			      in_folder("driver/libcuda.so.580"), in_folder("driver/guard.so"));
	n += (size_t)snprintf(text + n, sizeof(text) - n,
			      "{\"driver\": \"%s\", \"guard\": \"%s\", \"behind\": \"libnvidia-ml-slurm-vgpu.so\"}",
			      in_folder("driver/libnvidia-ml.so.580"), in_folder("driver/guard.so"));
	for (unsigned int i = 0; i < 5; i++) {
		write_file(in_folder("driver/other%u.so.580", i), "another");
		n += (size_t)snprintf(text + n, sizeof(text) - n, ",{\"driver\": \"%s\", \"guard\": \"%s\"}",
				      in_folder("driver/other%u.so.580", i), in_folder("driver/guard.so"));
	}
	snprintf(text + n, sizeof(text) - n, "],");
	grant_more = text;
}

static double step_start(void)
{
	if (exists(in_folder("driver")))
		more_guards();
	grant(5, "strict", NULL);
	return step(false);
}

static double step_start_without_guards(void)
{
	grant_more = "\"guards\": [],";
	grant(5, "strict", NULL);
	return step(false);
}

static double step_end(void)
{
	grant(5, "strict", NULL);
	return step(true);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* One run in a process and a folder of its own. */
static double run_once(double (*body)(void))
{
	int ends[2], status;
	double took = 0;

	make_folder();
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		host.uid = geteuid();
		if (host.uid == 0) /* who else isolates no step either */
			own_machine();
		took = body();
		_exit(write(ends[1], &took, sizeof(took)) != sizeof(took));
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(read(ends[0], &took, sizeof(took)) == sizeof(took));
	close(ends[0]);
	close(ends[1]);
	remove_folder();
	return took;
}

int bench(void)
{
	static const struct {
		const char *name;
		double (*body)(void);
	} rows[] = {
		{"sbatch, no vgpu option", sbatch_without_options},
		{"sbatch, two vgpu options", sbatch_with_options},
		{"slurmstepd, job without vgpu", step_without_vgpu},
		{"slurmstepd, step start", step_start},
		{"slurmstepd, without guards", step_start_without_guards},
		{"slurmstepd, step end", step_end},
	};
	enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
	static double took[ROWS][RUNS];

	for (int run = 0; run < RUNS; run++) /* in turns, as the machine does other things */
		for (size_t i = 0; i < ROWS; i++)
			took[i][run] = run_once(rows[i].body);
	printf("%-32s %10s %10s\n", "plugin cost, microseconds", "median", "p95");
	for (size_t i = 0; i < ROWS; i++) {
		qsort(took[i], RUNS, sizeof(took[i][0]), ascending);
		printf("%-32s %10.0f %10.0f\n", rows[i].name, took[i][RUNS / 2], took[i][RUNS * 95 / 100]);
	}
	return 0;
}
