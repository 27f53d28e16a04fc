/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory of other interfaces. What cuSimOutside allocates is this process's until the import of its
 * descriptor is destroyed. A resource of OpenGL and the like takes as many MiB of the context as its
 * number says. */
#include "drv_share.h"

#include <stdlib.h>
#include <unistd.h>

struct CUextMemory_st {
	CUexternalMemory next;
	struct shared shared;
	CUcontext ctx;
};

struct CUgraphicsResource_st {
	CUgraphicsResource next;
	CUcontext ctx;
	uint64_t bytes;
	bool old; /* of cuGLRegisterBufferObject */
};

static CUexternalMemory imports;
static CUgraphicsResource resources;

CUresult sim_cuSimOutside(CUdevice device, size_t bytes, int *fd)
{
	struct shared shared;

	NEED(drv_device(device));
	shared = drv_share(drv.device[device], 0, sim_round_up(bytes, SIM_GRANULE_BYTES));
	if (sim_mem_take(shared.device, shared.bytes) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*fd = drv_share_file(&shared, sizeof(shared));
	return CUDA_SUCCESS;
}

/* The descriptor is the driver's from then on, which closes it. */
CUresult sim_cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *handle)
{
	CUexternalMemory import;
	struct shared shared;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (memory == NULL || handle == NULL || handle->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD ||
	    pread(handle->handle.fd, &shared, sizeof(shared), 0) != (ssize_t)sizeof(shared) ||
	    !drv_share_lives(&shared))
		return CUDA_ERROR_INVALID_VALUE;
	import = calloc(1, sizeof(*import));
	if (import == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	close(handle->handle.fd);
	drv_lock();
	*import = (struct CUextMemory_st){ imports, shared, ctx };
	imports = import;
	*memory = import;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuExternalMemoryGetMappedBuffer(CUdeviceptr *pointer, CUexternalMemory memory,
					     const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *buffer)
{
	struct sim_block *block;

	NEED(drv_ready());
	if (pointer == NULL || memory == NULL || buffer == NULL || buffer->size == 0 ||
	    buffer->offset + buffer->size > memory->shared.bytes)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	block = drv_share_open(memory->ctx->device, memory->ctx->ordinal, buffer->size, NULL);
	if (block == NULL)
		return drv_unlock(CUDA_ERROR_OUT_OF_MEMORY);
	*pointer = block->base;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuDestroyExternalMemory(CUexternalMemory memory)
{
	NEED(drv_ready());
	drv_lock();
	for (CUexternalMemory *at = &imports; *at != NULL; at = &(*at)->next)
		if (*at == memory) {
			*at = memory->next;
			if (drv_share_is_ours(&memory->shared))
				sim_mem_give(memory->shared.device, memory->shared.bytes);
			free(memory);
			return drv_unlock(CUDA_SUCCESS);
		}
	return drv_unlock(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult enlist(CUgraphicsResource *out, uint64_t number, bool old)
{
	CUgraphicsResource resource;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (out == NULL || number == 0)
		return CUDA_ERROR_INVALID_VALUE;
	resource = calloc(1, sizeof(*resource));
	if (resource == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	drv_lock();
	if (!drv_grow(ctx, number * SIM_MIB)) {
		free(resource);
		return drv_unlock(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*resource = (struct CUgraphicsResource_st){ resources, ctx, number * SIM_MIB, old };
	resources = resource;
	*out = resource;
	return drv_unlock(CUDA_SUCCESS);
}

/* With the lock held. */
static CUresult strike(CUgraphicsResource *at)
{
	CUgraphicsResource resource = *at;

	if (resource == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	*at = resource->next;
	drv_shrink(resource->ctx, resource->bytes);
	free(resource);
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphicsGLRegisterBuffer(CUgraphicsResource *resource, unsigned int buffer, unsigned int flags)
{
	(void)flags;
	return enlist(resource, buffer, false);
}

CUresult sim_cuGraphicsGLRegisterImage(CUgraphicsResource *resource, unsigned int image, unsigned int target,
				       unsigned int flags)
{
	(void)target;
	return sim_cuGraphicsGLRegisterBuffer(resource, image, flags);
}

CUresult sim_cuGraphicsEGLRegisterImage(CUgraphicsResource *resource, void *image, unsigned int flags)
{
	return sim_cuGraphicsGLRegisterBuffer(resource, (unsigned int)(uintptr_t)image, flags);
}

CUresult sim_cuGraphicsVDPAURegisterVideoSurface(CUgraphicsResource *resource, uint32_t surface,
						 unsigned int flags)
{
	return sim_cuGraphicsGLRegisterBuffer(resource, surface, flags);
}

CUresult sim_cuGraphicsVDPAURegisterOutputSurface(CUgraphicsResource *resource, uint32_t surface,
						  unsigned int flags)
{
	return sim_cuGraphicsGLRegisterBuffer(resource, surface, flags);
}

CUresult sim_cuGraphicsUnregisterResource(CUgraphicsResource resource)
{
	CUgraphicsResource *at = &resources;

	NEED(drv_ready());
	drv_lock();
	while (*at != NULL && *at != resource)
		at = &(*at)->next;
	return drv_unlock(strike(at));
}

CUresult sim_cuGLRegisterBufferObject(unsigned int buffer)
{
	CUgraphicsResource resource;

	return enlist(&resource, buffer, true);
}

CUresult sim_cuGLUnregisterBufferObject(unsigned int buffer)
{
	CUgraphicsResource *at = &resources;

	NEED(drv_ready());
	drv_lock();
	while (*at != NULL && (!(*at)->old || (*at)->bytes != buffer * SIM_MIB))
		at = &(*at)->next;
	return drv_unlock(strike(at));
}
