/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMGPU_DRV_COPY_H
#define SIMGPU_DRV_COPY_H

#include "drv.h"

/* A side that is named as device memory must be memory that the driver knows. What is copied is there at
 * once; fills and copies within a device take time when the configuration says how fast its memory is. */
CUresult drv_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool to_device, bool from_device,
		  CUstream stream, bool wait);
CUresult drv_fill(CUdeviceptr to, const void *value, size_t width, size_t count, CUstream stream);
CUresult drv_fill_rows(CUdeviceptr to, size_t pitch, const void *value, size_t width, size_t count, size_t rows,
		       CUstream stream);

#endif
