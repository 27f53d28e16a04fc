/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What drv_graph.c and drv_graph_exec.c share. */
#ifndef SIMGPU_DRV_GRAPH_H
#define SIMGPU_DRV_GRAPH_H

#include "drv.h"

enum {
	SIM_NODE_CHILD = CU_GRAPH_NODE_TYPE_GRAPH,
	SIM_NODE_EMPTY = 5,
	SIM_NODE_ALLOC = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
	SIM_NODE_FREE = 11
};

struct CUgraphNode_st {
	CUgraphNode next;
	int type;
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUdeviceptr pointer; /* that it frees */
	CUgraph child;
};

struct CUgraph_st {
	CUgraph next;
	CUgraphNode first, last;
};

bool drv_graph_known(CUgraph graph); /* with the lock held */

#endif
