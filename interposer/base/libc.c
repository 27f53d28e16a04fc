/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/libc.h"

#include "base/image.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The dynamic linker has it, which is there anyway: named as a library that is needed, it would be looked for
 * at each start. */
#pragma weak _r_debug

static const char *last_part(const char *path)
{
	const char *part = path;

	for (; *path != '\0'; path++) {
		if (*path == '/')
			part = path + 1;
	}
	return part;
}

static bool look_at_map(const struct link_map *map, struct vgpu_libc *libc)
{
	const char *name = map->l_name == NULL ? "" : last_part(map->l_name);
	struct vgpu_image image;

	if ((!vgpu_same_text(name, "libc.so.6") && !vgpu_same_text(name, "libdl.so.2")) ||
	    !vgpu_image_of_map(map, &image))
		return false;
	libc->dlsym = (__typeof__(libc->dlsym))vgpu_image_find(&image, "dlsym");
	libc->dlvsym = (__typeof__(libc->dlvsym))vgpu_image_find(&image, "dlvsym");
	libc->dlopen = (__typeof__(libc->dlopen))vgpu_image_find(&image, "dlopen");
	libc->dladdr = (__typeof__(libc->dladdr))vgpu_image_find(&image, "dladdr");
	libc->dladdr1 = (__typeof__(libc->dladdr1))vgpu_image_find(&image, "dladdr1");
	return libc->dlsym != NULL && libc->dlvsym != NULL && libc->dlopen != NULL && libc->dladdr != NULL &&
	       libc->dladdr1 != NULL;
}

const struct vgpu_libc *vgpu_libc(void)
{
	static struct vgpu_libc found;
	static uint32_t taken, ready;
	static __thread struct vgpu_libc own;
	struct vgpu_libc libc = {0};
	const struct link_map *map;

	if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE))
		return &found;
	/* The dynamic linker's own list, without its lock: the C library stands before all that can go
	 * away. */
	map = &_r_debug == NULL ? NULL : _r_debug.r_map;
	while (map != NULL && !look_at_map(map, &libc))
		map = map->l_next;
	if (map == NULL)
		return NULL;
	/* One of the threads that come here together keeps it for all; the others have their own of this
	 * time, and none waits. */
	own = libc;
	if (!__atomic_exchange_n(&taken, 1, __ATOMIC_RELAXED)) {
		found = libc;
		__atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
	}
	return &own;
}

/* This library's own, which says which of the images it is. */
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

void *vgpu_libc_behind(const char *name)
{
	const struct link_map *map = &_r_debug == NULL ? NULL : _r_debug.r_map;
	struct vgpu_image image;
	void *found = NULL;

	while (map != NULL && map->l_ld != _DYNAMIC)
		map = map->l_next;
	for (; map != NULL && found == NULL; map = map->l_next) {
		if (map->l_ld != _DYNAMIC && vgpu_image_of_map(map, &image))
			found = vgpu_image_find(&image, name);
	}
	return found;
}
