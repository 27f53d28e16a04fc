/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "api/symbols.h"

#include "base/image.h"
#include "base/libc.h"

#include <stdio.h>
#include <string.h>

void *vgpu_real[VGPU_SYMBOLS];

static const char *const name_of[VGPU_SYMBOLS] = {
#define VGPU_CUDA(kind, symbol, ...) [VGPU_SYMBOL_##symbol] = #symbol,
#include "api/cuda.def"
#define VGPU_NVML(kind, symbol, ...) [VGPU_SYMBOL_##symbol] = #symbol,
#include "api/nvml.def"
};

enum { CUDA, NVML, LIBRARIES };
static const char *const soname[LIBRARIES] = {"libcuda.so.1", "libnvidia-ml.so.1"};
/* Behind a guard, which has its SONAME then (guard/). */
static const char *const guarded[LIBRARIES] = {"libcuda-slurm-vgpu.so", "libnvidia-ml-slurm-vgpu.so"};
/* Functions that every driver has. */
static const char *const mark[LIBRARIES] = {"cuInit", "nvmlInit_v2"};
/* The one that came by another name. */
static void *adopted[LIBRARIES];

static int library_of(enum vgpu_symbol symbol)
{
	return symbol < VGPU_CUDA_SYMBOLS ? CUDA : NVML;
}

/* The driver's library if it is loaded. The handle is kept: the addresses must outlive a dlclose by the
 * program. */
static void *loaded(const struct vgpu_libc *libc, int library)
{
	void *handle = libc->dlopen(guarded[library], RTLD_LAZY | RTLD_NOLOAD);

	return handle != NULL ? handle : libc->dlopen(soname[library], RTLD_LAZY | RTLD_NOLOAD);
}

bool vgpu_real_is_guarded(void)
{
	const struct vgpu_libc *libc = vgpu_libc();
	bool is = false;

	for (int library = 0; libc != NULL && library < LIBRARIES && !is; library++)
		is = libc->dlopen(guarded[library], RTLD_LAZY | RTLD_NOLOAD) != NULL;
	return is;
}

void *vgpu_real_guarded(unsigned int library, const char *name)
{
	const struct vgpu_libc *libc = vgpu_libc();
	void *handle = libc == NULL || library >= LIBRARIES
			       ? NULL
			       : libc->dlopen(guarded[library], RTLD_LAZY | RTLD_NOLOAD);

	return handle == NULL ? NULL : libc->dlsym(handle, name);
}

void *vgpu_real_look_up(enum vgpu_symbol symbol)
{
	const struct vgpu_libc *libc = vgpu_libc();
	void *address = NULL;
	void *library;

	if (libc == NULL)
		return NULL;
	library = loaded(libc, library_of(symbol));
	if (library != NULL)
		address = libc->dlsym(library, name_of[symbol]);
	library = __atomic_load_n(&adopted[library_of(symbol)], __ATOMIC_ACQUIRE);
	if (address == NULL && library != NULL)
		address = libc->dlsym(library, name_of[symbol]);
	if (address != NULL)
		__atomic_store_n(&vgpu_real[symbol], address, __ATOMIC_RELEASE);
	return address;
}

bool vgpu_real_is_of_driver(const struct vgpu_image *image)
{
	return vgpu_image_find(image, mark[CUDA]) != NULL || vgpu_image_find(image, mark[NVML]) != NULL;
}

bool vgpu_real_adopt(enum vgpu_symbol symbol, void *found)
{
	const struct vgpu_libc *libc = vgpu_libc();
	struct link_map *map = NULL;
	struct vgpu_image image;
	Dl_info info;

	if (libc == NULL || libc->dladdr1(found, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL ||
	    !vgpu_image_of_map(map, &image) || vgpu_image_find(&image, mark[library_of(symbol)]) == NULL)
		return false;
	/* One in a namespace of its own cannot be held: then the wrapper has no function to call. */
	if (libc->dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) == map) {
		__atomic_store_n(&adopted[library_of(symbol)], map, __ATOMIC_RELEASE);
		__atomic_store_n(&vgpu_real[symbol], found, __ATOMIC_RELEASE);
	}
	return true;
}

bool vgpu_real_load_nvml(void)
{
	const struct vgpu_libc *libc = vgpu_libc();
	char path[4096];
	const char *slash;
	Dl_info cuda;
	int length;

	if (libc == NULL)
		return false;
	if (libc->dlopen(soname[NVML], RTLD_LAZY | RTLD_LOCAL) != NULL)
		return true;
	/* The program may have found the driver by a path of its own: NVML lies beside it. */
	if (libc->dladdr(vgpu_real_address(VGPU_SYMBOL_cuInit), &cuda) == 0 || cuda.dli_fname == NULL)
		return false;
	slash = strrchr(cuda.dli_fname, '/');
	if (slash == NULL)
		return false;
	length = snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - cuda.dli_fname), cuda.dli_fname,
			  soname[NVML]);
	return length > 0 && (size_t)length < sizeof(path) &&
	       libc->dlopen(path, RTLD_LAZY | RTLD_LOCAL) != NULL;
}
