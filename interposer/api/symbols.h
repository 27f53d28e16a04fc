/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The tables of api/, expanded: what the drivers' functions are called, how they are called, where
 * the real ones and our wrappers are. */
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

enum vgpu_variant { VGPU_LEGACY, VGPU_PTSZ, VGPU_PTDS };

struct vgpu_row {
	const char *symbol;
	const char *base;
	uint16_t symbol_length;
	uint16_t base_length;
	uint16_t since;
	uint8_t variant;
	void *wrapper; /* NULL in rows of kind USE */
};
extern const struct vgpu_row vgpu_row[VGPU_SYMBOLS];

/* The row of a wrapped function, VGPU_SYMBOLS when the name is not one. */
enum vgpu_symbol vgpu_symbol_find(const char *name);

/* The driver's function, NULL when its library is not loaded or does not have it. */
void *vgpu_real_look_up(enum vgpu_symbol symbol);
extern void *vgpu_real[VGPU_SYMBOLS] __attribute__((visibility("hidden")));

static inline void *vgpu_real_address(enum vgpu_symbol symbol)
{
	void *address = __atomic_load_n(&vgpu_real[symbol], __ATOMIC_ACQUIRE);

	return __builtin_expect(address != NULL, 1) ? address : vgpu_real_look_up(symbol);
}
#define VGPU_REAL(symbol) ((vgpu_fn_##symbol *)vgpu_real_address(VGPU_SYMBOL_##symbol))

/* Whether the image is a driver's library, by what it defines. */
bool vgpu_real_is_of_driver(const struct vgpu_image *image);

/* Takes what a search has found for the driver's function if it is one: the library may have come by another name,
 * while one without anything in it has its name. False when it is no driver's. */
bool vgpu_real_adopt(enum vgpu_symbol symbol, void *found);

/* Loads NVML, which a CUDA program seldom has. */
bool vgpu_real_load_nvml(void);

/* What cuGetProcAddress is to answer, after the driver has answered found for the name. */
void *vgpu_symbol_of_proc(const char *name, void *found, int version, cuuint64_t flags);

#endif
