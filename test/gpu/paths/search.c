/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "search.h"

#include "witness.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

#define UNKNOWN WITNESS_UNKNOWN
/* Managed memory stays this far from what is free on the device. */
#define MANAGED_MARGIN (4096 * MIB)

/* Bytes, at one moment: what CUDA and NVML say to this process, and what the witness knows. */
struct views {
	uint64_t cuda_free, cuda_total, nvml_used, nvml_total, own, real;
	uint64_t device; /* for managed memory: what the whole device has taken more than at first */
};

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_process {
	unsigned int pid;
	unsigned long long bytes;
	unsigned int gpu_instance, compute_instance;
};

static int (*nvml_memory)(void *device, struct nvml_memory *memory);
static int (*nvml_processes)(void *device, unsigned int *count, struct nvml_process *list);
static void *nvml_device;

static void nvml_start(const char *uuid)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	int (*init)(void);
	int (*by_uuid)(const char *, void **);

	if (library == NULL)
		return;
	*(void **)&init = dlsym(library, "nvmlInit_v2");
	*(void **)&by_uuid = dlsym(library, "nvmlDeviceGetHandleByUUID");
	*(void **)&nvml_memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
	*(void **)&nvml_processes = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
	if (init == NULL || by_uuid == NULL || nvml_memory == NULL || nvml_processes == NULL || init() != 0 ||
	    by_uuid(uuid, &nvml_device) != 0)
		nvml_device = NULL;
}

/* The driver's figure of a process leaves managed memory out: that is only seen on the device as a whole,
 * and only while nobody else takes any. */
static void ask_witness(unsigned int flags, struct views *v)
{
	static uint64_t first_free = UNKNOWN;
	struct witness_said now = witness_ask(getpid());

	v->real = flags & PATH_SHARED ? now.session : now.process;
	if (first_free == UNKNOWN)
		first_free = now.device_free;
	if ((flags & PATH_MANAGED) && now.device_free != UNKNOWN)
		v->device = first_free > now.device_free ? first_free - now.device_free : 0;
}

static struct views look(const struct path_driver *driver, unsigned int flags)
{
	static struct nvml_process list[1024];
	struct views v = { UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN };
	struct nvml_memory memory;
	size_t free_bytes, total_bytes;
	unsigned int count = 1024;

	ask_witness(flags, &v);
	if (driver->mem_info(&free_bytes, &total_bytes) == 0) {
		v.cuda_free = free_bytes;
		v.cuda_total = total_bytes;
	}
	if (nvml_device == NULL)
		return v;
	if (nvml_memory(nvml_device, &memory) == 0) {
		v.nvml_used = memory.used;
		v.nvml_total = memory.total;
	}
	if (nvml_processes(nvml_device, &count, list) == 0) {
		v.own = 0;
		for (unsigned int i = 0; i < count; i++)
			if (((flags & PATH_SHARED) || list[i].pid == (unsigned int)getpid()) &&
			    list[i].bytes != UNKNOWN)
				v.own += list[i].bytes;
	}
	return v;
}

static void print_views(const struct views *v)
{
	const uint64_t field[] = {v->cuda_free, v->cuda_total, v->nvml_used, v->nvml_total,
				  v->own,	v->real,       v->device};

	for (size_t i = 0; i < sizeof(field) / sizeof(field[0]); i++) {
		if (field[i] == UNKNOWN)
			printf("\t-");
		else
			printf("\t%llu", (unsigned long long)field[i]);
	}
}

void path_header(void)
{
	static const char *const moment[] = { "before", "at the largest", "after" };

	printf("path\tgranule\tcap\tlargest that works\tsmallest that fails\terror");
	for (int i = 0; i < 3; i++)
		printf("\t%s: cuda free\tcuda total\tnvml used\tnvml total\town by nvml\treally own\tof the "
		       "device",
		       moment[i]);
	printf("\ttries\tflags\tnote\n");
}

void path_absent(const char *name, int error, const char *why)
{
	printf("%s\t-\t-\t-\t-\t%d", name, error);
	for (int i = 0; i < 21; i++)
		printf("\t-");
	printf("\t0\t0\t%s\n", why);
}

/* Where the search is: works_units is known to work, fails_units to fail (0: not found yet). */
struct range {
	uint64_t works_units, fails_units;
	int error;
	unsigned int tries;
};

static bool try_units(const struct path *path, struct range *r, uint64_t units)
{
	int error = path->take(units * path->granule);

	r->tries++;
	if (error == 0) {
		path->give();
		if (units > r->works_units)
			r->works_units = units;
		return true;
	}
	if (r->fails_units == 0 || units < r->fails_units) {
		r->fails_units = units;
		r->error = error;
	}
	return false;
}

/* Beginning where CUDA says the end is saves most of the big allocations of a blind search. */
static void search(const struct path *path, struct range *r, uint64_t free_bytes, uint64_t cap_units)
{
	uint64_t guess = free_bytes == UNKNOWN ? 0 : free_bytes / path->granule;

	bool begun = guess > 0 && guess < cap_units;

	if (begun && try_units(path, r, guess))
		try_units(path, r, guess + 1);
	if (r->fails_units == 0 && try_units(path, r, cap_units))
		return;
	for (uint64_t down = 1; r->works_units == 0 && down < guess; down *= 8)
		try_units(path, r, guess - down);
	while (r->works_units + 1 < r->fails_units && r->tries < 64)
		try_units(path, r, r->works_units + (r->fails_units - r->works_units) / 2);
}

static void fill(const struct path *path, struct range *r, uint64_t cap_units)
{
	while (r->works_units < cap_units) {
		r->error = path->take(path->granule);
		r->tries++;
		if (r->error != 0) {
			r->fails_units = r->works_units + 1;
			return;
		}
		r->works_units++;
	}
}

static uint64_t cap_of(const struct path *path, const struct views *before, uint64_t cap_mib)
{
	uint64_t cap = cap_mib != 0		       ? cap_mib * MIB
		       : before->cuda_total != UNKNOWN ? before->cuda_total
						       : before->nvml_total;
	uint64_t device_free;

	if (path->most != 0 && cap > path->most)
		cap = path->most;
	/* Without a witness this is a job: its cap is near its limit, and the limit is on the device. */
	if ((path->flags & PATH_MANAGED) && (device_free = witness_ask(0).device_free) != UNKNOWN) {
		device_free = device_free > MANAGED_MARGIN ? device_free - MANAGED_MARGIN : 0;
		if (cap > device_free)
			cap = device_free;
	}
	return cap;
}

int path_search(const struct path *path, const struct path_driver *driver, uint64_t cap_mib)
{
	struct views before, at_largest, after;
	struct range r = { 0, 0, 0, 0 };
	uint64_t cap_units;
	const char *trouble = "";
	bool held;
	int error;

	nvml_start(driver->uuid);
	error = path->start != NULL ? path->start() : 0;
	if (error != 0) {
		path_absent(path->name, error,
			    error == PATH_ABSENT ? "not in this driver" : "could not be prepared");
		return error == PATH_ABSENT ? 0 : 1;
	}
	before = look(driver, path->flags);
	cap_units = cap_of(path, &before, cap_mib) / path->granule;
	if (path->flags & PATH_FILL)
		fill(path, &r, cap_units);
	else if (path->flags & PATH_HOST)
		try_units(path, &r, cap_units);
	else
		search(path, &r, before.cuda_free, cap_units);
	if (r.error < 0) {
		path_absent(path->name, r.error, r.error == PATH_ABSENT ? "not in this driver" : "broke off");
		return r.error == PATH_ABSENT ? 0 : 1;
	}
	held = r.works_units > 0;
	if (held && !(path->flags & PATH_FILL) && path->take(r.works_units * path->granule) != 0) {
		held = false;
		trouble = "the largest did not work again";
	}
	if (held && path->touch != NULL && path->touch() != 0)
		trouble = "the memory is not usable";
	at_largest = look(driver, path->flags);
	if (held)
		path->give();
	after = look(driver, path->flags);

	printf("%s\t%llu\t%llu\t%llu", path->name, (unsigned long long)path->granule,
	       (unsigned long long)(cap_units * path->granule),
	       (unsigned long long)(r.works_units * path->granule));
	if (r.fails_units == 0)
		printf("\t-\t0");
	else
		printf("\t%llu\t%d", (unsigned long long)(r.fails_units * path->granule), r.error);
	print_views(&before);
	print_views(&at_largest);
	print_views(&after);
	printf("\t%u\t%u\t%s%s%s\n", r.tries, path->flags, path->note != NULL ? path->note : "",
	       path->note != NULL && path->note[0] != '\0' && *trouble != '\0' ? "; " : "", trouble);
	return 0;
}
