/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "process/process.h"

#include <string.h>
#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* The function behind pthread_atfork, which would need the start files, and so constructors. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso);

struct vgpu_pages vgpu_pages;

struct vgpu_process *vgpu_this_process;

static void forget_parent(void)
{
	memset(vgpu_this_process, 0, VGPU_OWN_BYTES);
}

struct vgpu_process *vgpu_process_memory(void)
{
	struct vgpu_process *p = __atomic_load_n(&vgpu_this_process, __ATOMIC_ACQUIRE);
	struct vgpu_process *none = NULL;
	bool wiped;

	if (p != NULL)
		return p;
	p = mmap(NULL, VGPU_OWN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	wiped = madvise(p, VGPU_OWN_BYTES, MADV_WIPEONFORK) == 0;
	if (!__atomic_compare_exchange_n(&vgpu_this_process, &none, p, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE)) {
		munmap(p, VGPU_OWN_BYTES);
		return none;
	}
	/* Kernels before 4.14 cannot; fork handlers do not see a bare clone, but nothing else is left. */
	if (!wiped)
		__register_atfork(NULL, NULL, forget_parent, NULL);
	return p;
}
