/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "api/symbols.h"

#include "api/kinds.h"
#include "base/image.h"
#include "base/libc.h"
#include "driver/capture.h"

#include <stdio.h>
#include <string.h>

#define VGPU_CUDA(kind, symbol, ...) vgpu_fn_##symbol vgpu_wrap_##symbol;
#include "api/cuda.def"
#define VGPU_NVML(kind, symbol, ...) vgpu_fn_##symbol vgpu_wrap_##symbol;
#include "api/nvml.def"

#define ROW(kind, symbol_, base_, since_, variant_)                  \
	[VGPU_SYMBOL_##symbol_] = {                                  \
		.symbol = #symbol_,                                  \
		.base = #base_,                                      \
		.symbol_length = sizeof(#symbol_) - 1,               \
		.base_length = sizeof(#base_) - 1,                   \
		.since = since_,                                     \
		.variant = VGPU_##variant_,                          \
		VGPU_IF_WRAPPED(kind, .wrapper = (void *)vgpu_wrap_##symbol_)},

const struct vgpu_row vgpu_row[VGPU_SYMBOLS] = {
#define VGPU_CUDA(kind, symbol, base, since, variant, ...) ROW(kind, symbol, base, since, variant)
#include "api/cuda.def"
#define VGPU_NVML(kind, symbol, ...) ROW(kind, symbol, symbol, 0, LEGACY)
#include "api/nvml.def"
};

void *vgpu_real[VGPU_SYMBOLS];

static bool is(const char *name, size_t length, const char *other, size_t other_length)
{
	return length == other_length && memcmp(name, other, length) == 0;
}

enum vgpu_symbol vgpu_symbol_find(const char *name)
{
	size_t length;

	/* Nearly every lookup in nearly every process ends here; those of libraries on top of CUDA too, whose
	 * names go on with a small letter. */
	if (!(name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z') &&
	    !(name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l'))
		return VGPU_SYMBOLS;
	length = strlen(name);
	for (unsigned int i = 0; i < VGPU_SYMBOLS; i++) {
		if (vgpu_row[i].wrapper != NULL &&
		    is(name, length, vgpu_row[i].symbol, vgpu_row[i].symbol_length))
			return (enum vgpu_symbol)i;
	}
	vgpu_capture_unwrapped(name);
	return VGPU_SYMBOLS;
}

enum { CUDA, NVML, LIBRARIES };
static const char *const soname[LIBRARIES] = {"libcuda.so.1", "libnvidia-ml.so.1"};
/* What no driver is without. */
static const char *const mark[LIBRARIES] = {"cuInit", "nvmlInit_v2"};
/* The one that came by another name. */
static void *adopted[LIBRARIES];

static int library_of(enum vgpu_symbol symbol)
{
	return symbol < VGPU_CUDA_SYMBOLS ? CUDA : NVML;
}

void *vgpu_real_look_up(enum vgpu_symbol symbol)
{
	const struct vgpu_libc *libc = vgpu_libc();
	void *address = NULL;
	void *library;

	if (libc == NULL)
		return NULL;
	/* The handle is kept: the addresses must outlive a dlclose by the program. */
	library = libc->dlopen(soname[library_of(symbol)], RTLD_LAZY | RTLD_NOLOAD);
	if (library != NULL)
		address = libc->dlsym(library, vgpu_row[symbol].symbol);
	library = __atomic_load_n(&adopted[library_of(symbol)], __ATOMIC_ACQUIRE);
	if (address == NULL && library != NULL)
		address = libc->dlsym(library, vgpu_row[symbol].symbol);
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
	length = snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - cuda.dli_fname), cuda.dli_fname, soname[NVML]);
	return length > 0 && (size_t)length < sizeof(path) && libc->dlopen(path, RTLD_LAZY | RTLD_LOCAL) != NULL;
}

/* Whether the driver answers found when it is asked for this version of the name. */
static bool gives(const char *name, int version, cuuint64_t flags, const void *found)
{
	vgpu_fn_cuGetProcAddress_v2 *ask_v2 = VGPU_REAL(cuGetProcAddress_v2);
	vgpu_fn_cuGetProcAddress *ask = VGPU_REAL(cuGetProcAddress);
	CUdriverProcAddressQueryResult status;
	void *then = NULL;

	if (ask_v2 != NULL)
		return ask_v2(name, &then, version, flags, &status) == CUDA_SUCCESS && then == found;
	return ask != NULL && ask(name, &then, version, flags) == CUDA_SUCCESS && then == found;
}

/* The newest row of the base that is not newer than the version. */
static enum vgpu_symbol newest(const char *name, size_t length, int version, bool per_thread)
{
	enum vgpu_symbol best = VGPU_SYMBOLS;

	for (unsigned int i = 0; i < VGPU_CUDA_SYMBOLS; i++) {
		const struct vgpu_row *row = &vgpu_row[i];

		if (row->wrapper == NULL || !is(name, length, row->base, row->base_length) || row->since > version ||
		    (row->variant != VGPU_LEGACY && !per_thread))
			continue;
		if (best == VGPU_SYMBOLS || row->since > vgpu_row[best].since ||
		    (row->since == vgpu_row[best].since && row->variant != VGPU_LEGACY))
			best = (enum vgpu_symbol)i;
	}
	return best;
}

void *vgpu_symbol_of_proc(const char *name, void *found, int version, cuuint64_t flags)
{
	bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
	size_t length = strlen(name);

	for (unsigned int i = 0; i < VGPU_CUDA_SYMBOLS; i++) {
		const struct vgpu_row *row = &vgpu_row[i];

		/* The name as exported says all by itself; where it is a base too, the version decides. */
		if (row->wrapper != NULL && is(name, length, row->symbol, row->symbol_length) &&
		    !is(name, length, row->base, row->base_length))
			return row->wrapper;
	}
	/* What the driver has given may be a function that has a row by another name, cuGraphInstantiate of
	 * 12.0 for one. */
	for (unsigned int i = 0; i < VGPU_CUDA_SYMBOLS; i++) {
		if (vgpu_row[i].wrapper != NULL && vgpu_real_address((enum vgpu_symbol)i) == found)
			return vgpu_row[i].wrapper;
	}
	/* Or another entry point of a function that has: the newest row of that name which the driver has too.
	 * A newer version of the name may have other parameters: our wrapper would break the program. */
	for (;;) {
		enum vgpu_symbol best = newest(name, length, version, per_thread);

		if (best == VGPU_SYMBOLS || !gives(name, vgpu_row[best].since, flags, found))
			break;
		version = vgpu_row[best].since - 1;
		if (!gives(name, version, flags, found))
			return vgpu_row[best].wrapper;
	}
	vgpu_capture_unwrapped(name);
	return found;
}
