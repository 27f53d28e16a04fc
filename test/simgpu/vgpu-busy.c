/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the GPU busy with kernels of known length, and says what part of its time that was. */
#define _GNU_SOURCE
#include "board.h"
#include "driver_symbols.h"
#include "option.h"

#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define NAME "vgpu-busy"
#define MAX_AHEAD 64
#define LOOK_NS 2000000

struct options {
	unsigned long long us, rest_us, for_ms, each_ms, ahead, device;
	const char *begin, *until, *board;
};

static struct board board;

static struct {
	int (*init)(unsigned);
	int (*device_get)(int *, int);
	int (*primary_retain)(void **, int);
	int (*set_current)(void *);
	int (*load)(void **, const void *);
	int (*get_function)(void **, void *, const char *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
		      void **, void **);
	int (*event_create)(void **, unsigned);
	int (*event_record)(void *, void *);
	int (*event_synchronize)(void *);
	int (*error_name)(int, const char **);
} cu;

/* By the GPU's clock, so that a kernel that has to share the GPU seems to have had all of it. The simulated
 * driver knows the kernel by its name. */
static const char kernel_text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry simgpu_busy_us(.param .u32 us)\n"
	"{\n"
	".reg .u32 %r<2>;\n.reg .u64 %t<4>;\n.reg .pred %p<2>;\n"
	"ld.param.u32 %r1, [us];\n"
	"mul.wide.u32 %t1, %r1, 1000;\n"
	"mov.u64 %t2, %globaltimer;\n"
	"add.u64 %t1, %t1, %t2;\n"
	"AGAIN:\n"
	"mov.u64 %t3, %globaltimer;\n"
	"setp.lt.u64 %p1, %t3, %t1;\n"
	"@%p1 bra AGAIN;\n"
	"ret;\n"
	"}\n";

static int usage(FILE *to, int status)
{
	fprintf(to,
		"usage: vgpu-busy [--us MICROSECONDS] [--rest MICROSECONDS] [--for MILLISECONDS | --until FILE]\n"
		"                 [--begin FILE] [--each MILLISECONDS] [--ahead N] [--device N] [--board FILE]\n"
		"Keeps the GPU busy with kernels of so many microseconds (1000), one after the other and up\n"
		"to N (8) of them ahead, for the time given (1000) or until FILE exists, and says what part of\n"
		"the GPU's time they took; with --each also for each such interval. --begin waits for a\n"
		"file before the first of them; --rest waits after each until it is done, and sleeps. --board:\n"
		"a trial's file says when to begin and to end, and is where it counts.\n"
		"Exit status: 0, 1 any CUDA error, 2 usage.\n");
	return status;
}

static int parse(int argc, char **argv, struct options *opt)
{
	static const struct option known[] = {
		{ "us", required_argument, NULL, 'u' },	   { "rest", required_argument, NULL, 'r' },
		{ "for", required_argument, NULL, 'f' },
		{ "until", required_argument, NULL, 'x' }, { "begin", required_argument, NULL, 'b' },
		{ "each", required_argument, NULL, 'e' },  { "ahead", required_argument, NULL, 'a' },
		{ "device", required_argument, NULL, 'd' }, { "board", required_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'H' },	   { NULL, 0, NULL, 0 },
	};
	int c, index, good = 1;

	*opt = (struct options){ .us = 1000, .for_ms = 1000, .ahead = 8 };
	while (good && (c = getopt_long(argc, argv, "", known, &index)) != -1) {
		if (c == 'u')
			good = option_number(NAME, "us", optarg, 1, 1000000, &opt->us);
		else if (c == 'r')
			good = option_number(NAME, "rest", optarg, 1, 1000000, &opt->rest_us);
		else if (c == 'f')
			good = option_number(NAME, "for", optarg, 1, 86400000, &opt->for_ms);
		else if (c == 'e')
			good = option_number(NAME, "each", optarg, 1, 86400000, &opt->each_ms);
		else if (c == 'a')
			good = option_number(NAME, "ahead", optarg, 1, MAX_AHEAD, &opt->ahead);
		else if (c == 'd')
			good = option_number(NAME, "device", optarg, 0, 1024, &opt->device);
		else if (c == 'x')
			opt->until = optarg;
		else if (c == 'b')
			opt->begin = optarg;
		else if (c == 'o')
			opt->board = optarg;
		else if (c == 'H')
			return usage(stdout, -1);
		else
			good = 0;
	}
	opt->ahead = opt->rest_us != 0 ? 1 : opt->ahead;
	return good && optind == argc ? 0 : usage(stderr, 2);
}

static int load(void)
{
	const struct driver_symbol need[] = {
		{ "cuInit", &cu.init },
		{ "cuDeviceGet", &cu.device_get },
		{ "cuDevicePrimaryCtxRetain", &cu.primary_retain },
		{ "cuCtxSetCurrent", &cu.set_current },
		{ "cuModuleLoadData", &cu.load },
		{ "cuModuleGetFunction", &cu.get_function },
		{ "cuLaunchKernel", &cu.launch },
		{ "cuEventCreate", &cu.event_create },
		{ "cuEventRecord", &cu.event_record },
		{ "cuEventSynchronize", &cu.event_synchronize },
		{ "cuGetErrorName", &cu.error_name },
	};

	return driver_symbols(need, sizeof(need) / sizeof(need[0]));
}

static int failed(const char *what, int rc)
{
	const char *name = NULL;

	if (cu.error_name(rc, &name) != 0 || name == NULL)
		name = "unknown error";
	fprintf(stderr, "vgpu-busy: %s: %s (%d)\n", what, name, rc);
	return 1;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void nap_ns(uint64_t ns)
{
	struct timespec nap = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };

	if (ns != 0)
		nanosleep(&nap, NULL);
}

static void await(const char *file)
{
	while (file != NULL && access(file, F_OK) != 0)
		nap_ns(LOOK_NS);
}

static int ended(const struct options *opt, uint64_t since_ns, uint64_t now, uint64_t *looked_ns)
{
	if (board_stops(&board))
		return 1;
	if (opt->until == NULL)
		return now - since_ns >= opt->for_ms * 1000000;
	if (now - *looked_ns < LOOK_NS)
		return 0;
	*looked_ns = now;
	return access(opt->until, F_OK) == 0;
}

static double percent(const struct options *opt, uint64_t kernels, uint64_t ns)
{
	return 100.0 * (double)(kernels * opt->us) * 1000 / (double)ns;
}

/* Counts what is done, not what is launched. */
static int keep_busy(const struct options *opt, void *kernel)
{
	uint64_t launched = 0, done = 0, told = 0, since = now_ns(), now = since, told_ns = since,
		 looked_ns = since, launched_ns = since;
	unsigned us = (unsigned)opt->us;
	void *params[] = { &us }, *event[MAX_AHEAD];
	int rc, last = 0;

	for (unsigned i = 0; i < opt->ahead; i++)
		if ((rc = cu.event_create(&event[i], 2 /* without timing */)) != 0)
			return failed("cuEventCreate", rc);
	while (!last || done < launched) {
		last = last || ended(opt, since, now, &looked_ns);
		if (!last && launched - done < opt->ahead) {
			if ((rc = cu.launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL)) != 0 ||
			    (rc = cu.event_record(event[launched % opt->ahead], NULL)) != 0)
				return failed("cuLaunchKernel", rc);
			launched++;
			launched_ns = now;
		} else if (done < launched) {
			if ((rc = cu.event_synchronize(event[done % opt->ahead])) != 0)
				return failed("cuEventSynchronize", rc);
			done++;
			board_count(&board, done, opt->rest_us != 0 ? now_ns() - launched_ns : 0);
			nap_ns(opt->rest_us * 1000);
		}
		now = now_ns();
		if (opt->each_ms != 0 && now - told_ns >= opt->each_ms * 1000000) {
			printf("%.1f %%\n", percent(opt, done - told, now - told_ns));
			fflush(stdout);
			told = done;
			told_ns = now;
		}
	}
	printf("busy for %.1f %% of %.2f s: %llu kernels of %u us\n", percent(opt, done, now - since),
	       (double)(now - since) / 1e9, (unsigned long long)done, us);
	return 0;
}

static int begin(const struct options *opt)
{
	void *context, *module, *kernel;
	int rc, device;

	if ((rc = cu.init(0)) != 0)
		return failed("cuInit", rc);
	if ((rc = cu.device_get(&device, (int)opt->device)) != 0)
		return failed("cuDeviceGet", rc);
	if ((rc = cu.primary_retain(&context, device)) != 0 || (rc = cu.set_current(context)) != 0)
		return failed("creating a context", rc);
	if ((rc = cu.load(&module, kernel_text)) != 0 ||
	    (rc = cu.get_function(&kernel, module, "simgpu_busy_us")) != 0)
		return failed("loading the kernel", rc);
	if (opt->board != NULL && board_open(&board, opt->board, (double)opt->us / 1e3) != 0)
		return 1;
	await(opt->begin);
	while (board_waits(&board))
		nap_ns(LOOK_NS);
	return keep_busy(opt, kernel);
}

int main(int argc, char **argv)
{
	struct options opt;
	int rc = parse(argc, argv, &opt);

	if (rc != 0)
		return rc < 0 ? 0 : rc;
	return load() ? begin(&opt) : 1;
}
