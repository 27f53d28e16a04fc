/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMGPU_VGPU_CHEAT_H
#define SIMGPU_VGPU_CHEAT_H

#include <stdint.h>

/* A control call by system call: the driver's status, or UINT32_MAX. */
uint32_t cheat_control(int fd, uint32_t of, uint32_t object, uint32_t command, void *params, uint32_t bytes);

/* Kernels of so many microseconds on the first GPU, without libcuda; returns only on failure. */
int cheat_raw(unsigned long long us);

#endif
