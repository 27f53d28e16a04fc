/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Expands the rows of api/cuda.def with the bodies of their kinds. */
#include "wrap_array.h"
#include "wrap_capture.h"
#include "wrap_context.h"
#include "wrap_copy.h"
#include "wrap_growth.h"
#include "wrap_info.h"
#include "wrap_launch.h"
#include "wrap_memory.h"
#include "wrap_pools.h"
#include "wrap_start.h"
#include "wrap_vmm.h"

#define WRAP_USE(symbol, params, args)

#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) \
	WRAP_##kind(symbol, params, args __VA_OPT__(,) __VA_ARGS__)
#include "api/cuda.def"
