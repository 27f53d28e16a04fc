/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which calls wait for a stream that waits for a word of memory, and which questions of another thread wait
 * for them. A row for each, and for the call in that stream or beside it. */
#ifndef VGPU_TEST_WAITS_PROBE_H
#define VGPU_TEST_WAITS_PROBE_H

#include "calls.h"

int probe_all(const struct calls *const *calls, unsigned count);

#endif
