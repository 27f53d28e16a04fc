/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMGPU_DRV_COPY_H
#define SIMGPU_DRV_COPY_H

#include "drv.h"

/* A side that is named as device memory must be memory that the driver knows. What is copied is there at
 * once; fills and copies within a device take time when the configuration says how fast its memory is. */
CUresult drv_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool to_device, bool from_device,
		  CUstream stream, bool wait);

/* One end of a copy, as the program names it: type is CU_MEMORYTYPE_*. */
struct drv_end {
	unsigned type;
	CUdeviceptr at;	 /* where it begins */
	CUarray array;
	size_t pitch, layer_rows;
};

struct drv_box {
	uint64_t row_bytes, rows, layers;
};

CUresult drv_copy_box(const struct drv_end *to, const struct drv_end *from, const struct drv_box *box,
		      CUstream stream, bool wait);
/* The stream waits for so much to come from the host, or from another device. */
CUresult drv_take_host_time(CUstream stream, uint64_t bytes);

/* drv_pointer.c, with the lock held: the block when the driver may write or read all of that */
struct sim_block *drv_spans(CUdeviceptr pointer, uint64_t bytes);

CUresult drv_fill(CUdeviceptr to, const void *value, size_t width, size_t count, CUstream stream);
CUresult drv_fill_rows(CUdeviceptr to, size_t pitch, const void *value, size_t width, size_t count,
		       size_t rows, CUstream stream);

#endif
