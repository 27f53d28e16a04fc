/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * In place of the driver's libraries for other interfaces than CUDA, whose memory no slice could count. It
 * has none of their names: a loader of OpenCL, Vulkan or OpenGL finds nothing of NVIDIA's in it and goes
 * on with what else there is. A line says so, once a process. */
#include <unistd.h>

static const char text[] =
	"vgpu: OpenCL, Vulkan and OpenGL on the GPU are closed in a slice, since their memory "
	"is not limited; CUDA works (other_apis in slurm-vgpu-config.yaml(5))\n";

__attribute__((constructor)) static void tell(void)
{
	/* A message that cannot be written is no reason to disturb the program. */
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		return;
}
