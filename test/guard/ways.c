/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * ways.c: how much memory a program gets that comes to the driver in some way: MiB, or why it cannot load it.
 *   ways linked|dlopen|deepbind|path FILE|new-namespace
 *   ways find FILE NAME            whether a library has a name
 *   ways time FILE                 what a call into a library takes, at its quickest
 *   ways ask NAME|call NAME|same    whether a name is found, what it returns, of two handles */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/cuda_types.h"

#define PIECE_MIB 100u
#define PIECES 200u

struct driver {
	CUresult (*init)(unsigned int flags);
	CUresult (*retain)(CUcontext *context, CUdevice device);
	CUresult (*current)(CUcontext context);
	CUresult (*allocate)(CUdeviceptr *at, size_t bytes);
};

static int say(const struct driver *d)
{
	CUcontext context;
	CUdeviceptr at;
	CUresult result = d->init(0);
	unsigned int n = 0;

	if (result == CUDA_SUCCESS)
		result = d->retain(&context, 0);
	if (result == CUDA_SUCCESS)
		result = d->current(context);
	if (result != CUDA_SUCCESS) {
		printf("error %d\n", (int)result);
		return 0;
	}
	while (n < PIECES && d->allocate(&at, (size_t)PIECE_MIB << 20) == CUDA_SUCCESS)
		n++;
	printf("%u MiB\n", n * PIECE_MIB);
	return 0;
}

static int say_of(void *library)
{
	struct driver d;

	if (library == NULL) {
		printf("not loaded: %s\n", dlerror());
		return 0;
	}
	d.init = (CUresult (*)(unsigned int))dlsym(library, "cuInit");
	d.retain = (CUresult (*)(CUcontext *, CUdevice))dlsym(library, "cuDevicePrimaryCtxRetain");
	d.current = (CUresult (*)(CUcontext))dlsym(library, "cuCtxSetCurrent");
	d.allocate = (CUresult (*)(CUdeviceptr *, size_t))dlsym(library, "cuMemAlloc_v2");
	if (d.init == NULL || d.retain == NULL || d.current == NULL || d.allocate == NULL) {
		printf("a function is missing\n");
		return 1;
	}
	return say(&d);
}

#ifdef LINKED
CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes);

static int linked(void)
{
	static const struct driver d = {cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemAlloc_v2};

	return say(&d);
}
#else
static int linked(void)
{
	return 2;
}
#endif

/* A name that the driver has, or has not, and the table of the guard does, or does not. */
static int ask(const char *name, int call)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	int (*function)(void) = library == NULL ? NULL : (int (*)(void))dlsym(library, name);

	if (function == NULL)
		printf("no such name\n");
	else if (call)
		printf("%d\n", function());
	else
		printf("found\n");
	return 0;
}

static int find(const char *file, const char *name)
{
	void *library = dlopen(file, RTLD_NOW);

	if (library == NULL)
		return printf("not loaded: %s\n", dlerror()) < 0;
	return printf("%s\n", dlsym(library, name) != NULL ? "found" : "no such name") < 0;
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int time_of(const char *file)
{
	void *library = dlopen(file, RTLD_NOW);
	CUresult (*call)(int *) = NULL;
	const unsigned int calls = 1000000;
	double least = 1e9;
	int version;

	if (library != NULL)
		call = (CUresult(*)(int *))dlsym(library, "cuDriverGetVersion");
	if (call == NULL || call(&version) != CUDA_SUCCESS)
		return printf("cannot be called\n") < 0;
	for (unsigned int round = 0; round < 50; round++) {
		double begun = now_ns();

		for (unsigned int i = 0; i < calls; i++)
			call(&version);
		least = now_ns() - begun < least ? now_ns() - begun : least;
	}
	return printf("%.2f ns\n", least / calls) < 0;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";

	if (strcmp(way, "linked") == 0)
		return linked();
	if (strcmp(way, "dlopen") == 0)
		return say_of(dlopen("libcuda.so.1", RTLD_NOW));
	if (strcmp(way, "deepbind") == 0)
		return say_of(dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND));
	if (strcmp(way, "path") == 0 && argc > 2)
		return say_of(dlopen(argv[2], RTLD_NOW | RTLD_LOCAL));
	if (strcmp(way, "find") == 0 && argc > 3)
		return find(argv[2], argv[3]);
	if (strcmp(way, "time") == 0 && argc > 2)
		return time_of(argv[2]);
	if (strcmp(way, "new-namespace") == 0)
		return say_of(dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW));
	if ((strcmp(way, "ask") == 0 || strcmp(way, "call") == 0) && argc > 2)
		return ask(argv[2], way[0] == 'c');
	if (strcmp(way, "same") == 0)
		return printf("%s\n", dlopen("libcuda.so.1", RTLD_NOW) == dlopen("libcuda.so.1", RTLD_NOW)
					      ? "the same"
					      : "another") < 0;
	return 2;
}
