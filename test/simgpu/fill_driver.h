/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The few driver entry points that vgpu-fill uses. */
#ifndef SIMGPU_FILL_DRIVER_H
#define SIMGPU_FILL_DRIVER_H

#include <stddef.h>

typedef unsigned long long fill_ptr;

/* CUmemAllocationProp and CUmemAccessDesc as CUDA 10.2 and later have them. */
struct fill_prop {
	int type, handle_types;
	struct {
		int type, id;
	} location;
	void *win32;
	unsigned char flags[8];
};

struct fill_access {
	struct {
		int type, id;
	} location;
	int flags;
};

struct fill_driver {
	int (*init)(unsigned);
	int (*device_get)(int *, int);
	int (*device_name)(char *, int, int);
	int (*primary_retain)(void **, int);
	int (*set_current)(void *);
	int (*synchronize)(void);
	int (*mem_info)(size_t *, size_t *);
	int (*error_name)(int, const char **);
	int (*alloc)(fill_ptr *, size_t);
	int (*alloc_managed)(fill_ptr *, size_t, unsigned);
	int (*alloc_async)(fill_ptr *, size_t, void *);
	int (*reserve)(fill_ptr *, size_t, size_t, fill_ptr, unsigned long long);
	int (*create)(unsigned long long *, size_t, const struct fill_prop *, unsigned long long);
	int (*map)(fill_ptr, size_t, size_t, unsigned long long, unsigned long long);
	int (*set_access)(fill_ptr, size_t, const struct fill_access *, size_t);
	int (*granularity)(size_t *, const struct fill_prop *, int);
	int (*memset8)(fill_ptr, unsigned char, size_t);
};

/* 0: a message said why not. */
int fill_driver_load(struct fill_driver *driver);

#endif
