/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * From a name to our wrapper. The wrappers are in rooms above this one: the table of rows names them where
 * the library is linked. */
#ifndef VGPU_ROUTE_LOOKUP_H
#define VGPU_ROUTE_LOOKUP_H

#include "api/symbols.h"

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

/* The answer of cuGetProcAddress, after the driver has answered found for the name. */
void *vgpu_symbol_of_proc(const char *name, void *found, int version, cuuint64_t flags);

#endif
