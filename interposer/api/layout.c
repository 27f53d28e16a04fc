/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How long a ledger the library needs, in a section that can be read without loading it
 * (internal/version). */
#include "api/layout.h"

static const uint32_t ledger_bytes __attribute__((used, section(".slurm_vgpu.layout"))) =
	sizeof(struct vgpu_ledger);
