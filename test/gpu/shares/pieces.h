/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The pieces of work that a load is made of: kernels, copies and fills of known size. */
#ifndef VGPU_TEST_PIECES_H
#define VGPU_TEST_PIECES_H

#include "driver.h"

#include <stdint.h>

/* The context, the streams and the memory. A CUDA error, or 0; so do the others. */
int pieces_prepare(void);
/* For a thread of its own. */
int pieces_thread(void);

/* The piece of this number goes to its stream, and the event behind it; behind the event last, if the pieces
 * form a chain. */
int piece_submit(uint64_t number, CUevent event, CUevent last);
/* A kernel that is none of a piece. */
int pieces_launch(CUstream on, unsigned int us);

/* Loops of the kernel per microsecond, at the clock that a busy GPU has. */
double pieces_calibrate(void);

#endif
