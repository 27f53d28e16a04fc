/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The C library's own dlsym and friends, found without asking the dynamic linker for them by name:
 * it would answer with ours. Linking against them is no way either, since they moved from libdl to
 * libc, under new versions, in glibc 2.34. */
#ifndef VGPU_BASE_LIBC_H
#define VGPU_BASE_LIBC_H

#include <dlfcn.h>

struct vgpu_libc {
	void *(*dlsym)(void *handle, const char *name);
	void *(*dlvsym)(void *handle, const char *name, const char *version);
	void *(*dlopen)(const char *file, int flags);
	int (*dladdr)(const void *address, Dl_info *info);
	int (*dladdr1)(const void *address, Dl_info *info, void **extra, int flags);
};

/* NULL while they are not there: before glibc 2.34 that is a process without libdl. */
const struct vgpu_libc *vgpu_libc(void);

/* The function of this name that comes behind this library's own: the C library's, but where a preload or a
 * sanitizer has one of its own. Found without any lock; NULL when there is none. */
void *vgpu_libc_behind(const char *name);

#endif
