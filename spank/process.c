/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <unistd.h>

static pid_t allowed; /* 0: no process, so slurmd never matches */

void vgpu_allow_go(void)
{
	allowed = getpid();
}

bool vgpu_may_enter_go(void)
{
	return allowed != 0 && allowed == getpid();
}
