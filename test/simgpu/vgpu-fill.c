/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Takes device memory in steps until the driver refuses, and says how much it got. */
#define _GNU_SOURCE
#include "fill_driver.h"
#include "option.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAME "vgpu-fill"
#define MIB (1ull << 20)
#define MOST (1u << 24)
#define CUDA_ERROR_OUT_OF_MEMORY 2

enum api { API_MALLOC, API_ASYNC, API_VMM, API_MANAGED };
static const char *const api_name[] = { "malloc", "async", "vmm", "managed" };

struct options {
	unsigned long long step_mib, upto_mib, hold_s, device;
	const char *hold_until;
	enum api api;
	int quiet;
};

static struct fill_driver cu;

static int usage(FILE *to, int status)
{
	fprintf(to,
		"usage: vgpu-fill [--step MIB] [--upto MIB] [--hold SECONDS | --hold-until FILE]\n"
		"                 [--api malloc|async|vmm|managed] [--device N] [--quiet]\n"
		"Takes GPU memory in steps (64 MiB) until CUDA refuses or --upto is reached, says how\n"
		"much it got, and holds it for the time given or until FILE exists.\n"
		"Exit status: 0 refused for lack of memory or --upto reached, 1 any other CUDA error,\n"
		"2 usage.\n");
	return status;
}

static int parse(int argc, char **argv, struct options *opt)
{
	static const struct option known[] = {
		{ "step", required_argument, NULL, 's' }, { "upto", required_argument, NULL, 'u' },
		{ "hold", required_argument, NULL, 'h' }, { "hold-until", required_argument, NULL, 'f' },
		{ "api", required_argument, NULL, 'a' },  { "device", required_argument, NULL, 'd' },
		{ "quiet", no_argument, NULL, 'q' },	  { "help", no_argument, NULL, 'H' },
		{ NULL, 0, NULL, 0 },
	};
	int c, index;

	*opt = (struct options){ .step_mib = 64 };
	while ((c = getopt_long(argc, argv, "", known, &index)) != -1) {
		if (c == 's' && !option_number(NAME, "step", optarg, 1, MOST, &opt->step_mib))
			return usage(stderr, 2);
		if (c == 'u' && !option_number(NAME, "upto", optarg, 0, MOST, &opt->upto_mib))
			return usage(stderr, 2);
		if (c == 'h' && !option_number(NAME, "hold", optarg, 0, MOST, &opt->hold_s))
			return usage(stderr, 2);
		if (c == 'd' && !option_number(NAME, "device", optarg, 0, 1024, &opt->device))
			return usage(stderr, 2);
		if (c == 'f')
			opt->hold_until = optarg;
		if (c == 'q')
			opt->quiet = 1;
		if (c == 'H')
			return usage(stdout, -1);
		if (c == '?')
			return usage(stderr, 2);
		if (c == 'a') {
			for (opt->api = 0; opt->api <= API_MANAGED; opt->api++)
				if (strcmp(optarg, api_name[opt->api]) == 0)
					break;
			if (opt->api > API_MANAGED)
				return usage(stderr, 2);
		}
	}
	return optind == argc ? 0 : usage(stderr, 2);
}

static const char *error_name(int rc)
{
	const char *name = NULL;

	return cu.error_name(rc, &name) == 0 && name != NULL ? name : "unknown error";
}

static int failed(const char *what, int rc)
{
	fprintf(stderr, "vgpu-fill: %s: %s (%d)\n", what, error_name(rc), rc);
	return 1;
}

static int take_vmm(size_t bytes, int device)
{
	struct fill_prop prop = { .type = 1, .location = { .type = 1, .id = device } };
	struct fill_access access = { .location = { .type = 1, .id = device }, .flags = 3 };
	unsigned long long handle;
	size_t granule;
	fill_ptr ptr;
	int rc = cu.granularity(&granule, &prop, 0);

	if (rc != 0)
		return rc;
	bytes = (bytes + granule - 1) / granule * granule;
	rc = cu.create(&handle, bytes, &prop, 0);
	if (rc == 0)
		rc = cu.reserve(&ptr, bytes, 0, 0, 0);
	if (rc == 0)
		rc = cu.map(ptr, bytes, 0, handle, 0);
	return rc != 0 ? rc : cu.set_access(ptr, bytes, &access, 1);
}

static int take(enum api api, size_t bytes, int device)
{
	fill_ptr ptr;
	int rc;

	switch (api) {
	case API_ASYNC:
		rc = cu.alloc_async(&ptr, bytes, NULL);
		return rc != 0 ? rc : cu.synchronize();
	case API_VMM:
		return take_vmm(bytes, device);
	case API_MANAGED:
		rc = cu.alloc_managed(&ptr, bytes, 1);
		return rc != 0 ? rc : cu.memset8(ptr, 0, bytes); /* it is taken when touched */
	default:
		return cu.alloc(&ptr, bytes);
	}
}

static void hold(const struct options *opt)
{
	struct timespec nap = { .tv_nsec = 50 * 1000 * 1000 };

	if (opt->hold_until != NULL)
		while (access(opt->hold_until, F_OK) != 0)
			nanosleep(&nap, NULL);
	else
		for (unsigned left = (unsigned)opt->hold_s; left != 0;)
			left = sleep(left);
}

static int fill(const struct options *opt)
{
	unsigned long long got = 0, upto = opt->upto_mib;
	size_t free_bytes, total_bytes;
	char name[128] = "";
	void *context;
	int rc, device;

	if ((rc = cu.init(0)) != 0)
		return failed("cuInit", rc);
	if ((rc = cu.device_get(&device, (int)opt->device)) != 0)
		return failed("cuDeviceGet", rc);
	cu.device_name(name, sizeof(name), device);
	if ((rc = cu.primary_retain(&context, device)) != 0 || (rc = cu.set_current(context)) != 0)
		return failed("creating a context", rc);
	if ((rc = cu.mem_info(&free_bytes, &total_bytes)) != 0)
		return failed("cuMemGetInfo", rc);
	printf("%s: total %llu MiB, free %llu MiB\n", name, total_bytes / MIB, free_bytes / MIB);
	/* Managed memory beyond the GPU's size is legal and can stall a real one. */
	if (opt->api == API_MANAGED && (upto == 0 || upto > total_bytes / MIB))
		upto = total_bytes / MIB;
	while (upto == 0 || got < upto) {
		unsigned long long step = opt->step_mib;

		if (upto != 0 && step > upto - got)
			step = upto - got;
		rc = take(opt->api, step * MIB, device);
		if (rc != 0)
			break;
		got += step;
		if (!opt->quiet && isatty(STDOUT_FILENO))
			printf("\rtook %llu MiB", got);
		fflush(stdout);
	}
	if (!opt->quiet)
		printf("%s%s after %llu MiB in steps of %llu MiB (%s)\n",
		       isatty(STDOUT_FILENO) ? "\r" : "", rc != 0 ? error_name(rc) : "stopped as asked",
		       got, opt->step_mib, api_name[opt->api]);
	else
		printf("%s %llu MiB\n", rc != 0 ? error_name(rc) : "took", got);
	fflush(stdout);
	if (rc != 0 && rc != CUDA_ERROR_OUT_OF_MEMORY)
		return 1;
	hold(opt);
	return 0;
}

int main(int argc, char **argv)
{
	struct options opt;
	int rc = parse(argc, argv, &opt);

	if (rc != 0)
		return rc < 0 ? 0 : rc;
	return fill_driver_load(&cu) ? fill(&opt) : 1;
}
