/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stands for libslurm-vgpu.so: a process into which it is loaded finds PRELOADED=yes. */
#include <stdlib.h>

__attribute__((constructor)) static void announce(void)
{
	setenv("PRELOADED", "yes", 1);
}
