/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver/capture.h"

#include "api/symbols.h"

#include <string.h>

#define BEGINS "cuStreamBegin"

uint32_t vgpu_captures_unseen;

void vgpu_capture_unwrapped(const char *name)
{
	if (strncmp(name, BEGINS, sizeof(BEGINS) - 1) == 0)
		__atomic_store_n(&vgpu_captures_unseen, 1, __ATOMIC_RELAXED);
}

void vgpu_capture_begins(struct vgpu_process *p)
{
	__atomic_add_fetch(&p->captures, 1, __ATOMIC_SEQ_CST);
}

/* Never below none: an end may be seen of which the begin was not. */
void vgpu_capture_ended(struct vgpu_process *p)
{
	uint32_t captures = __atomic_load_n(&p->captures, __ATOMIC_RELAXED);

	while (captures != 0 && !__atomic_compare_exchange_n(&p->captures, &captures, captures - 1, 0,
							     __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

bool vgpu_capture_of_stream(CUstream stream)
{
	vgpu_fn_cuStreamIsCapturing *ask = VGPU_REAL(cuStreamIsCapturing);
	int status = 0;

	return ask != NULL && (ask(stream, &status) != CUDA_SUCCESS || status != 0);
}
