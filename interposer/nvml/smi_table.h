/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * nvidia-smi's private table: which processes it reads there. */
#ifndef VGPU_NVML_SMI_TABLE_H
#define VGPU_NVML_SMI_TABLE_H

#include "process/process.h"

/* The table to hand out for the one that the driver gave for the UUID: a copy with the lists of
 * processes replaced when it is known, and the driver's own otherwise. */
const void *vgpu_nvml_table(const void *table, const void *uuid);

#endif
