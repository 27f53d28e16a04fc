/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A process that a test makes up, with what the rooms keep behind it (process/process.h). */
#ifndef VGPU_TEST_WHOLE_H
#define VGPU_TEST_WHOLE_H

#include "process/process.h"

union whole_process {
	struct vgpu_process process;
	char bytes[VGPU_OWN_BYTES];
} __attribute__((aligned(VGPU_PAGE_BYTES)));

#endif
