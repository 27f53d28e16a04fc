/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Contexts for drawing. Green contexts: each holds the primary context, in which its memory lies. They have
 * no share of the device of their own here. And libraries, which are modules that need no current context to
 * be loaded: of the current context's device here, else of the first. */
#include "drv.h"

#include <stdlib.h>

struct CUgreenCtx_st {
	CUdevice device;
	CUcontext primary;
};

CUresult sim_cuDevResourceGenerateDesc(CUdevResourceDesc *resources, void *list, unsigned int count)
{
	static int all;

	(void)list;
	NEED(drv_ready());
	if (resources == NULL || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	*resources = (CUdevResourceDesc)&all;
	return CUDA_SUCCESS;
}

CUresult sim_cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
			      unsigned int flags)
{
	CUgreenCtx made;
	CUresult result;

	NEED(drv_ready());
	if (green == NULL || resources == NULL || flags != 1) /* DEFAULT_STREAM is required */
		return CUDA_ERROR_INVALID_VALUE;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->device = device;
	result = sim_cuDevicePrimaryCtxRetain(&made->primary, device);
	if (result == CUDA_SUCCESS)
		*green = made;
	else
		free(made);
	return result;
}

CUresult sim_cuGreenCtxDestroy(CUgreenCtx green)
{
	CUdevice device;

	NEED(drv_ready());
	if (green == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	device = green->device;
	free(green);
	return sim_cuDevicePrimaryCtxRelease_v2(device);
}

CUresult sim_cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
	CUresult result;

	NEED(drv_ready());
	if (context == NULL || green == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	result = drv_context_derive(context, green->primary);
	return drv_unlock(result);
}

/* What the functions for drawing make is a context like any other here. */
CUresult sim_cuGLCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	return sim_cuCtxCreate_v2(context, flags, device);
}

CUresult sim_cuGLCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	return sim_cuCtxCreate_v2(context, flags, device);
}

CUresult sim_cuVDPAUCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device, uint32_t display,
				 void *get_address)
{
	(void)display;
	(void)get_address;
	return sim_cuCtxCreate_v2(context, flags, device);
}

CUresult sim_cuVDPAUCtxCreate(CUcontext *context, unsigned int flags, CUdevice device, uint32_t display,
			      void *get_address)
{
	return sim_cuVDPAUCtxCreate_v2(context, flags, device, display, get_address);
}

/* ---- libraries ---- */

struct CUlib_st {
	CUmodule module;
};

static CUresult in_some_context(CUcontext *own)
{
	CUcontext ctx;

	*own = NULL;
	if (drv_current(&ctx) == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	NEED(sim_cuDevicePrimaryCtxRetain(own, 0));
	return sim_cuCtxPushCurrent_v2(*own);
}

static void out_of_context(CUcontext own)
{
	if (own != NULL)
		sim_cuCtxPopCurrent_v2(&own);
}

static CUresult load(CUlibrary *library, const void *what, CUresult (*how)(CUmodule *, const void *))
{
	CUlibrary made;
	CUcontext own;
	CUresult result;

	NEED(drv_ready());
	if (library == NULL || what == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = in_some_context(&own);
	if (result == CUDA_SUCCESS) {
		result = how(&made->module, what);
		out_of_context(own);
	}
	if (result == CUDA_SUCCESS)
		*library = made;
	else
		free(made);
	return result;
}

static CUresult load_file(CUmodule *module, const void *path)
{
	return sim_cuModuleLoad(module, path);
}

CUresult sim_cuLibraryLoadData(CUlibrary *library, const void *code, int *jit_options, void **jit_values,
			       unsigned int jit_count, int *options, void **values, unsigned int count)
{
	if ((jit_count != 0 && (jit_options == NULL || jit_values == NULL)) ||
	    (count != 0 && (options == NULL || values == NULL)))
		return CUDA_ERROR_INVALID_VALUE;
	return load(library, code, sim_cuModuleLoadData);
}

CUresult sim_cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *jit_options, void **jit_values,
				   unsigned int jit_count, int *options, void **values, unsigned int count)
{
	if ((jit_count != 0 && (jit_options == NULL || jit_values == NULL)) ||
	    (count != 0 && (options == NULL || values == NULL)))
		return CUDA_ERROR_INVALID_VALUE;
	return load(library, path, load_file);
}

CUresult sim_cuLibraryUnload(CUlibrary library)
{
	CUresult result;

	NEED(drv_ready());
	if (library == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	result = sim_cuModuleUnload(library->module);
	free(library);
	return result;
}

CUresult sim_cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
	NEED(drv_ready());
	if (module == NULL || library == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*module = library->module;
	return CUDA_SUCCESS;
}

/* A kernel and its function are one here. */
CUresult sim_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	CUfunction function;

	NEED(drv_ready());
	if (kernel == NULL || library == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(sim_cuModuleGetFunction(&function, library->module, name));
	*kernel = (CUkernel)function;
	return CUDA_SUCCESS;
}

CUresult sim_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	NEED(drv_ready());
	if (function == NULL || kernel == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*function = (CUfunction)kernel;
	return CUDA_SUCCESS;
}

/* A module has no variables here, but asking for one loads it. */
CUresult sim_cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name)
{
	CUfunction function;

	if (pointer != NULL)
		*pointer = 0;
	if (bytes != NULL)
		*bytes = 0;
	return sim_cuModuleGetFunction(&function, module, name);
}

CUresult sim_cuModuleGetGlobal(CUdeviceptr_v1 *pointer, unsigned int *bytes, CUmodule module,
			       const char *name)
{
	if (pointer != NULL)
		*pointer = 0;
	if (bytes != NULL)
		*bytes = 0;
	return sim_cuModuleGetGlobal_v2(NULL, NULL, module, name);
}

CUresult sim_cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
	NEED(drv_ready());
	if (library == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return sim_cuModuleGetGlobal_v2(pointer, bytes, library->module, name);
}

CUresult sim_cuLibraryGetUnifiedFunction(void **function, CUlibrary library, const char *name)
{
	NEED(drv_ready());
	if (function == NULL || library == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return sim_cuModuleGetFunction((CUfunction *)function, library->module, name);
}

CUresult sim_cuLibraryGetManaged(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
	return sim_cuLibraryGetGlobal(pointer, bytes, library, name);
}
