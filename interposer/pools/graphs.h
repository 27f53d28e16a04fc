/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory nodes of graphs. The driver takes their memory when an executable graph is first uploaded
 * or launched, from what it keeps for the graphs of the device, and keeps it until that is trimmed. */
#ifndef VGPU_POOLS_GRAPHS_H
#define VGPU_POOLS_GRAPHS_H

#include "pools/pools.h"

/* The driver has made exec of graph. Notes what its memory nodes can take at most. */
void vgpu_graphs_built(struct vgpu_process *p, CUgraphExec exec, CUgraph graph);
/* Uploads it; when the limit leaves too little, exec is destroyed. Returns the caller's answer. */
CUresult vgpu_graphs_upload(struct vgpu_process *p, CUgraphExec exec, CUstream stream);
void vgpu_graphs_gone(struct vgpu_process *p, CUgraphExec exec);

/* Before and after a launch or an upload. Anything but CUDA_SUCCESS is the caller's answer. */
CUresult vgpu_graphs_begin(struct vgpu_process *p, struct vgpu_growth *g, CUgraphExec exec, CUstream stream);
void vgpu_graphs_end(struct vgpu_process *p, struct vgpu_growth *g, CUgraphExec exec, CUresult result);

/* The program has trimmed what the driver keeps for graphs. */
void vgpu_graphs_trimmed(struct vgpu_process *p, CUdevice ordinal);

#endif
