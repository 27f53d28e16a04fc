/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The tables of api/, expanded: what the drivers' functions are called, how they are called, and where
 * the real ones are. */
#ifndef VGPU_API_SYMBOLS_H
#define VGPU_API_SYMBOLS_H

#include "api/cuda_types.h"
#include "base/image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vgpu_symbol {
#define VGPU_CUDA(kind, symbol, ...) VGPU_SYMBOL_##symbol,
#include "api/cuda.def"
	VGPU_CUDA_SYMBOLS,
	VGPU_NVML_BEFORE = VGPU_CUDA_SYMBOLS - 1,
#define VGPU_NVML(kind, symbol, ...) VGPU_SYMBOL_##symbol,
#include "api/nvml.def"
	VGPU_SYMBOLS
};

#define VGPU_CUDA(kind, symbol, base, since, variant, params, ...) typedef CUresult vgpu_fn_##symbol params;
#include "api/cuda.def"
#define VGPU_NVML(kind, symbol, params, ...) typedef nvmlReturn_t vgpu_fn_##symbol params;
#include "api/nvml.def"

/* The driver's function, NULL when its library is not loaded or does not have it. */
void *vgpu_real_look_up(enum vgpu_symbol symbol);
extern void *vgpu_real[VGPU_SYMBOLS] __attribute__((visibility("hidden")));

static inline void *vgpu_real_address(enum vgpu_symbol symbol)
{
	void *address = __atomic_load_n(&vgpu_real[symbol], __ATOMIC_ACQUIRE);

	return __builtin_expect(address != NULL, 1) ? address : vgpu_real_look_up(symbol);
}
#define VGPU_REAL(symbol) ((vgpu_fn_##symbol *)vgpu_real_address(VGPU_SYMBOL_##symbol))

/* Whether one of the driver's libraries stands behind a guard (guard/). */
bool vgpu_real_is_guarded(void);

/* The function of this name in the driver behind a guard; library: 0 for CUDA, 1 for NVML. */
void *vgpu_real_guarded(unsigned int library, const char *name);

/* Whether the image is a driver's library, by what it defines. */
bool vgpu_real_is_of_driver(const struct vgpu_image *image);

/* Takes what a search has found for the driver's function if it is one: the library may have come by another
 * name, while one without anything in it has its name. False when it is no driver's. */
bool vgpu_real_adopt(enum vgpu_symbol symbol, void *found);

/* Loads NVML, which a CUDA program seldom has. */
bool vgpu_real_load_nvml(void);

#endif
