/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a copy is to the GPU: within one device it keeps it busy like a kernel. From and to the host, and
 * between devices, other engines make it, and it only keeps its stream waiting. */
#ifndef VGPU_GATE_COPIES_H
#define VGPU_GATE_COPIES_H

#include "process/process.h"

/* Shorter ones are over sooner than they could be timed. */
#define LONG_BYTES (1u << 20)

/* Sizes that differ by less than an eighth take as long, nearly. */
static inline uint64_t vgpu_size_class(uint64_t bytes)
{
	uint32_t bits = bytes < 8 ? 3 : 63u - (uint32_t)__builtin_clzll(bytes);

	return bits << 3 | (bytes >> (bits - 3) & 7);
}

struct vgpu_copied {
	uint64_t bytes;	       /* within a device */
	uint64_t beside_bytes; /* the others */
	uint64_t shape;	       /* of those within: what tells how long they take, besides their size */
	uint64_t count;	       /* and how many they are */
};

/* One end of a copy: where it begins, when it is neither an array nor named as host memory. */
struct vgpu_end {
	uint32_t type; /* CU_MEMORYTYPE_* */
	CUdeviceptr at;
};
#define VGPU_END_ARRAY ((struct vgpu_end){CU_MEMORYTYPE_ARRAY, 0})
#define VGPU_END_DEVICE(pointer) ((struct vgpu_end){CU_MEMORYTYPE_DEVICE, pointer})
#define VGPU_END_UNIFIED(pointer) ((struct vgpu_end){CU_MEMORYTYPE_UNIFIED, pointer})

struct vgpu_copied vgpu_copied_rows(struct vgpu_process *p, struct vgpu_end to, struct vgpu_end from,
				    uint64_t row_bytes, uint64_t rows, uint64_t layers);

/* The lists of cuMemcpyBatchAsync and cuMemcpy3DBatchAsync. Missing ones are the driver's to refuse. */
struct vgpu_copied vgpu_copied_list(struct vgpu_process *p, const CUdeviceptr *to, const CUdeviceptr *from,
				    const size_t *bytes, size_t count);
struct vgpu_copied vgpu_copied_boxes(struct vgpu_process *p, const CUDA_MEMCPY3D_BATCH_OP *list,
				     size_t count);

#endif
