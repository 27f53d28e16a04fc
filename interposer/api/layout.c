/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which layout of a job's pages the library knows, in a section that can be read without loading it
 * (internal/version). */
#include "api/layout.h"

static const uint32_t layout_version __attribute__((used, section(".slurm_vgpu.layout"))) =
	VGPU_LAYOUT_VERSION;
