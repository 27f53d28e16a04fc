/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Lookups by name. The entry points are in trampoline.S: they keep the caller's return address, by
 * which the C library finds the library that RTLD_NEXT means. */
#ifndef VGPU_ROUTE_ROUTE_H
#define VGPU_ROUTE_ROUTE_H

/* Where tail is not NULL the entry point jumps there with its own arguments, as if the caller had
 * called it; else answer is the result. */
struct vgpu_route {
	void *answer;
	void *tail;
};

/* trampoline.S, exported as dlsym and dlvsym. */
void *vgpu_dlsym(void *handle, const char *name);
void *vgpu_dlvsym(void *handle, const char *name, const char *version);

/* As these, for whoever looks up the C library's: a preload's dlsym in between is not asked. */
void *vgpu_dlsym_behind(void *handle, const char *name);
void *vgpu_dlvsym_behind(void *handle, const char *name, const char *version);

struct vgpu_route vgpu_route_dlsym(void *handle, const char *name, const void *caller);
struct vgpu_route vgpu_route_dlvsym(void *handle, const char *name, const void *caller, const char *version);
struct vgpu_route vgpu_route_dlsym_behind(void *handle, const char *name, const void *caller);
struct vgpu_route vgpu_route_dlvsym_behind(void *handle, const char *name, const void *caller,
					   const char *version);

#endif
