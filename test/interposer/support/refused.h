/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef VGPU_TEST_REFUSED_H
#define VGPU_TEST_REFUSED_H

#include "harness.h"

/* CUDA is refused, with one line that has the reason. */
static inline void check_refused(const char *reason)
{
	const char *said;
	CUdeviceptr a;
	int first, second;

	stderr_catch();
	first = cuInit(0);
	second = cuInit(0);
	said = stderr_caught();
	CHECK_IS(first, CUDA_ERROR_NOT_PERMITTED);
	CHECK_IS(second, CUDA_ERROR_NOT_PERMITTED);
	CHECK(strncmp(said, "vgpu: ", 6) == 0 && strchr(said, '\n') == said + strlen(said) - 1);
	if (strstr(said, reason) == NULL) {
		fprintf(stderr, "said: %s", said);
		failures++;
	}
	CHECK_IS(cuMemAlloc_v2(&a, 1), CUDA_ERROR_NOT_PERMITTED);
	CHECK_IS(nvmlDeviceGetMemoryInfo(NULL, NULL), NVML_ERROR_NO_PERMISSION);
}

#endif
