/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the driver that may wait for what lies before them in a stream or in the whole context. */
#ifndef VGPU_TEST_WAITS_CALLS_H
#define VGPU_TEST_WAITS_CALLS_H

#include "api.h"

#include <stdbool.h>
#include <stdint.h>

#define MIB (1ull << 20)
#define BLOCK_BYTES (8 * MIB)

/* What a call is made with: its own things are made before and ended after it, when nothing is held back. */
struct things {
	CUstream stream; /* that it is made for, where it is for one */
	CUdeviceptr block, other;
	void *host;
	CUgraph graph, graph_too;
	CUgraphExec exec, exec_too;
	CUmodule module;
	CUfunction function;
	CUcontext context;
	CUstream own_stream;
	CUevent event;
	CUarray array;
	CUmemoryPool pool;
	CUmemGenericAllocationHandle handle;
	size_t limit;
};

struct call {
	const char *name;
	void *needs; /* where the function is, which a driver may not have */
	CUresult (*prepare)(struct things *t);
	CUresult (*call)(struct things *t);
	CUresult (*undo)(struct things *t);
};

struct calls {
	const char *name;
	const struct call *call;
	unsigned count;
};
extern const struct calls calls_of_memory, calls_of_pools, calls_of_copies, calls_of_graphs, calls_of_modules,
	calls_of_contexts, calls_of_streams;

/* The context, device 0's primary one, and the kernel (../spin.h). */
extern CUcontext context;
extern CUfunction spin;
/* False with a line on stderr. */
bool cuda_load(void);
CUresult cuda_begin(void);
CUresult launch(CUfunction function, unsigned us, CUstream stream);

/* First error, if any. */
#define TRY(call)                                 \
	do {                                      \
		CUresult try_result = (call);     \
		if (try_result != CUDA_SUCCESS)   \
			return try_result;        \
	} while (0)

static inline CUresult nothing(struct things *t)
{
	(void)t;
	return CUDA_SUCCESS;
}

#endif
