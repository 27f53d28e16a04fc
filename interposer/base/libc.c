/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/libc.h"

#include "base/image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static int look_at_image(struct dl_phdr_info *info, size_t size, void *out)
{
	struct vgpu_libc *libc = out;
	const char *slash = info->dlpi_name == NULL ? NULL : strrchr(info->dlpi_name, '/');
	const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
	struct vgpu_image image;

	(void)size;
	if (name == NULL || (strcmp(name, "libc.so.6") != 0 && strcmp(name, "libdl.so.2") != 0) ||
	    !vgpu_image_of_phdr(info, &image))
		return 0;
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
	static uint32_t ready;
	struct vgpu_libc libc = {0};

	if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE))
		return &found;
	if (dl_iterate_phdr(look_at_image, &libc) == 0)
		return NULL;
	/* Threads that come here together write the same values. */
	__atomic_store_n(&found.dlsym, libc.dlsym, __ATOMIC_RELAXED);
	__atomic_store_n(&found.dlvsym, libc.dlvsym, __ATOMIC_RELAXED);
	__atomic_store_n(&found.dlopen, libc.dlopen, __ATOMIC_RELAXED);
	__atomic_store_n(&found.dladdr, libc.dladdr, __ATOMIC_RELAXED);
	__atomic_store_n(&found.dladdr1, libc.dladdr1, __ATOMIC_RELAXED);
	__atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
	return &found;
}
