/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "route/lookup.h"

#include "api/kinds.h"
#include "driver/capture.h"

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

static bool same_name(const char *name, size_t length, const char *other, size_t other_length)
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
		    same_name(name, length, vgpu_row[i].symbol, vgpu_row[i].symbol_length))
			return (enum vgpu_symbol)i;
	}
	vgpu_capture_unwrapped(name);
	return VGPU_SYMBOLS;
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

		if (row->wrapper == NULL || !same_name(name, length, row->base, row->base_length) ||
		    row->since > version || (row->variant != VGPU_LEGACY && !per_thread))
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
		if (row->wrapper != NULL && same_name(name, length, row->symbol, row->symbol_length) &&
		    !same_name(name, length, row->base, row->base_length))
			return row->wrapper;
	}
	/* The driver's function may have a row by another name, as cuGraphInstantiate of 12.0. */
	for (unsigned int i = 0; i < VGPU_CUDA_SYMBOLS; i++) {
		if (vgpu_row[i].wrapper != NULL && vgpu_real_address((enum vgpu_symbol)i) == found)
			return vgpu_row[i].wrapper;
	}
	/* Or another entry point of a function that has: the newest row of that name which the driver has
	 * too. A newer version of the name may have other parameters: our wrapper would break the program. */
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
