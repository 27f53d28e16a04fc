/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How many samples a driver takes of a device in a while, when it lists only those in which a process was
 * at work and books each on one process. An H100 takes one every 0.2 s and remembers 14 s; others take up
 * to one a second. */
#ifndef VGPU_NVML_SAMPLES_H
#define VGPU_NVML_SAMPLES_H

#include <stdint.h>

/* In the time since last_us, of as much of it as is remembered; last_us 0: of all that. at_us are the ends
 * of the samples, of all processes, and are sorted. At least 1, and no fewer than there are ends.
 * Microseconds since 1970. */
uint32_t vgpu_samples_taken(uint64_t *at_us, uint32_t count, uint64_t last_us, uint64_t now_us);

#endif
