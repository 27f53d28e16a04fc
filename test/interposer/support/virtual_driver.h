/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver of a virtual host, and its GPU, on which kernels run one after the other. */
#ifndef VGPU_TEST_VIRTUAL_DRIVER_H
#define VGPU_TEST_VIRTUAL_DRIVER_H

#include "virtual_host.h"

extern uint64_t virtual_now; /* 0: the clock is the machine's */

void virtual_driver_begin(void);
/* Goes on until then. */
void virtual_driver_advance(uint64_t to_ns);
void virtual_driver_put(CUstream stream, bool kernel, uint64_t ns);
bool virtual_driver_is_drained(CUstream stream);
uint64_t virtual_driver_busy_ns(uint64_t from_ms, uint64_t to_ms);

#endif
