/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The file that a trial's tenants count in; test/gpu/gauge has the words and their places. */
#ifndef SIMGPU_BOARD_H
#define SIMGPU_BOARD_H

#include <stdint.h>

/* All zero: there is none, and nothing is written or waited for. */
struct board {
	volatile uint64_t *words;
};

int board_open(struct board *board, const char *path, double kernel_ms);
int board_waits(const struct board *board);
int board_stops(const struct board *board);

/* took_ns: of a request, or 0. */
void board_count(struct board *board, uint64_t done, uint64_t took_ns);

#endif
