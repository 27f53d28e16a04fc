/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Expands the rows of api/cuda.def with the bodies of their kinds. */
#include "cuda/array.h"
#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/overhead.h"
#include "cuda/memory_info.h"
#include "cuda/launch.h"
#include "cuda/memory.h"
#include "cuda/pools.h"
#include "cuda/start.h"
#include "cuda/vmm.h"

#define WRAP_USE(symbol, params, args)

#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) \
	WRAP_##kind(symbol, params, args __VA_OPT__(,) __VA_ARGS__)
#include "api/cuda.def"
