/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Of which release the library is, in a section that can be read without loading it (internal/version). The
 * plugin is linked with it as well. */
static const char version[] __attribute__((used, section(".slurm_vgpu.version"))) =
	"slurm-vgpu " VGPU_VERSION;
