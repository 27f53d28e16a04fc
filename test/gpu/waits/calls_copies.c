/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

#include <stdlib.h>

static CUresult make_blocks(struct things *t)
{
	TRY(cu.cuMemAlloc_v2(&t->block, BLOCK_BYTES));
	TRY(cu.cuMemAlloc_v2(&t->other, BLOCK_BYTES));
	t->host = calloc(1, BLOCK_BYTES);
	return t->host != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult free_blocks(struct things *t)
{
	free(t->host);
	TRY(cu.cuMemFree_v2(t->block));
	return cu.cuMemFree_v2(t->other);
}

static CUresult copy_to_device(struct things *t)
{
	return cu.cuMemcpyHtoD_v2(t->block, t->host, BLOCK_BYTES);
}

static CUresult copy_to_host(struct things *t)
{
	return cu.cuMemcpyDtoH_v2(t->host, t->block, BLOCK_BYTES);
}

static CUresult copy_within(struct things *t)
{
	return cu.cuMemcpyDtoD_v2(t->other, t->block, BLOCK_BYTES);
}

static CUresult fill(struct things *t)
{
	return cu.cuMemsetD8_v2(t->block, 1, BLOCK_BYTES);
}

static CUresult copy_pageable(struct things *t)
{
	return cu.cuMemcpyHtoDAsync_v2(t->block, t->host, BLOCK_BYTES, t->stream);
}

static const struct call calls[] = {
	{"cuMemcpyHtoD", &cu.cuMemcpyHtoD_v2, make_blocks, copy_to_device, free_blocks},
	{"cuMemcpyDtoH", &cu.cuMemcpyDtoH_v2, make_blocks, copy_to_host, free_blocks},
	{"cuMemcpyDtoD", &cu.cuMemcpyDtoD_v2, make_blocks, copy_within, free_blocks},
	{"cuMemsetD8", &cu.cuMemsetD8_v2, make_blocks, fill, free_blocks},
	{"cuMemcpyHtoDAsync, pageable", &cu.cuMemcpyHtoDAsync_v2, make_blocks, copy_pageable, free_blocks},
};

const struct calls calls_of_copies = {"copies", calls, sizeof(calls) / sizeof(calls[0])};
