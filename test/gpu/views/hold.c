/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Holds device memory and keeps the GPU at work until standard input ends, or for a time at most. Needs
 * no header of CUDA, and no symbol but the driver's. */
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct {
	int (*init)(unsigned int flags);
	int (*device)(int *device, int ordinal);
	int (*retain)(void **context, int device);
	int (*current)(void *context);
	int (*alloc)(unsigned long long *pointer, size_t bytes);
	int (*set)(unsigned long long pointer, unsigned char value, size_t bytes);
	int (*wait)(void);
} cu;

static int load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (library == NULL)
		return 0;
	*(void **)&cu.init = dlsym(library, "cuInit");
	*(void **)&cu.device = dlsym(library, "cuDeviceGet");
	*(void **)&cu.retain = dlsym(library, "cuDevicePrimaryCtxRetain");
	*(void **)&cu.current = dlsym(library, "cuCtxSetCurrent");
	*(void **)&cu.alloc = dlsym(library, "cuMemAlloc_v2");
	*(void **)&cu.set = dlsym(library, "cuMemsetD8_v2");
	*(void **)&cu.wait = dlsym(library, "cuCtxSynchronize");
	return cu.init && cu.device && cu.retain && cu.current && cu.alloc && cu.set && cu.wait;
}

int main(int argc, char **argv)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	unsigned long long pointer;
	size_t bytes;
	time_t end;
	void *context;
	int device, result;

	if (argc != 3) {
		fputs("usage: hold MIB SECONDS\n", stderr);
		return 2;
	}
	bytes = strtoull(argv[1], NULL, 10) << 20;
	end = time(NULL) + strtol(argv[2], NULL, 10);
	if (!load()) {
		fprintf(stderr, "hold: no CUDA driver: %s\n", dlerror());
		return 1;
	}
	if ((result = cu.init(0)) != 0 || (result = cu.device(&device, 0)) != 0 ||
	    (result = cu.retain(&context, device)) != 0 || (result = cu.current(context)) != 0 ||
	    (result = cu.alloc(&pointer, bytes)) != 0) {
		fprintf(stderr, "hold: CUDA error %d\n", result);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (time(NULL) < end && poll(&input, 1, 1) == 0) {
		for (int i = 0; i < 20; i++)
			cu.set(pointer, (unsigned char)i, bytes);
		if (cu.wait() != 0)
			return 1;
	}
	return 0;
}
