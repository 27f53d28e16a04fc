/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "streams/semaphore.h"

#include "api/symbols.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "streams/bell.h"

#include <sys/mman.h>

#define PAGE_BYTES 4096u
/* One cache line each. */
#define WORDS_APART 16u
_Static_assert(VGPU_SEMAPHORES *WORDS_APART * sizeof(uint32_t) <= PAGE_BYTES, "all words lie in one page");

/* It is never unmapped: a stream of a context that is going may still look at it. A forked child has none of
 * it: a page of both would be copied for whoever writes it first, and the GPU goes on reading the old one. */
static uint32_t *page_of(struct vgpu_engine *engine)
{
	uint32_t *page = __atomic_load_n(&engine->semaphores, __ATOMIC_ACQUIRE), *none = NULL;

	if (page != NULL)
		return page;
	page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return NULL;
	madvise(page, PAGE_BYTES, MADV_DONTFORK);
	if (__atomic_compare_exchange_n(&engine->semaphores, &none, page, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return page;
	munmap(page, PAGE_BYTES);
	return none;
}

bool vgpu_semaphore_ready(struct vgpu_engine *engine)
{
	return page_of(engine) != NULL;
}

/* Tells the driver of the page, unless some living context has. */
static bool is_registered(struct vgpu_engine *engine, uint32_t *page, CUcontext context)
{
	vgpu_fn_cuMemHostRegister_v2 *tell = VGPU_REAL(cuMemHostRegister_v2);
	CUcontext none = NULL;

	if (__atomic_load_n(&engine->semaphores_context, __ATOMIC_ACQUIRE) != NULL)
		return true;
	if (tell == NULL || tell(page, PAGE_BYTES,
				 CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) != CUDA_SUCCESS)
		return false;
	__atomic_compare_exchange_n(&engine->semaphores_context, &none, context, 0, __ATOMIC_ACQ_REL,
				    __ATOMIC_RELAXED);
	return true;
}

bool vgpu_semaphore_wait(struct vgpu_process *p, struct vgpu_engine *engine, uint32_t word, uint32_t value,
			 CUcontext context, CUstream stream, uint64_t by_ns)
{
	vgpu_fn_cuStreamWaitValue32_v2 *wait = VGPU_REAL(cuStreamWaitValue32_v2);
	vgpu_fn_cuMemHostGetDevicePointer_v2 *pointer_of = VGPU_REAL(cuMemHostGetDevicePointer_v2);
	uint32_t *page = GET(engine->semaphores_refused) != 0 ? NULL : page_of(engine);
	CUdeviceptr address;

	if (page == NULL || wait == NULL || pointer_of == NULL)
		return false;
	vgpu_poller_by(p, by_ns);
	if (is_registered(engine, page, context) &&
	    pointer_of(&address, page + word * WORDS_APART, 0) == CUDA_SUCCESS &&
	    wait(stream, address, value, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS)
		return true;
	SET(engine->semaphores_refused, 1);
	return false;
}

void vgpu_semaphore_signal(struct vgpu_engine *engine, uint32_t word, uint32_t value)
{
	uint32_t *page = __atomic_load_n(&engine->semaphores, __ATOMIC_ACQUIRE);

	if (page != NULL)
		__atomic_store_n(&page[word * WORDS_APART], value, __ATOMIC_RELEASE);
}

uint32_t vgpu_semaphore_value(const struct vgpu_engine *engine, uint32_t word)
{
	const uint32_t *page = __atomic_load_n(&engine->semaphores, __ATOMIC_ACQUIRE);

	return page == NULL ? 0 : GET(page[word * WORDS_APART]);
}

void vgpu_semaphore_context_gone(struct vgpu_engine *engine, CUcontext context)
{
	__atomic_compare_exchange_n(&engine->semaphores_context, &context, NULL, 0, __ATOMIC_ACQ_REL,
				    __ATOMIC_RELAXED);
}
