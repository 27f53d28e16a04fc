/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Modules and launches. A kernel whose name begins with "simgpu_busy_us" keeps the device busy for
 * as many microseconds as its first parameter, an unsigned int, says. Any other takes no time. */
#define _GNU_SOURCE
#include "drv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUSY_PREFIX "simgpu_busy_us"

struct CUfunc_st {
	CUfunction next;
	CUmodule module;
	bool busy;
	int shared_bytes;
	char name[];
};

struct CUmod_st {
	CUmodule next;
	CUcontext ctx;
	uint64_t bytes, lazy_bytes,
		launch_bytes; /* what it takes of the device, and will once it is used or run */
	char *text; /* PTX, or a list of names; NULL for an image that is not text: any name is in it */
	CUfunction functions;
};

static CUmodule modules;

/* ELF and fat binaries have no end that can be found without parsing them. */
static bool is_binary(const unsigned char *image)
{
	return image[0] == 0x7f || image[0] == 0x50 || image[0] == 0xb1;
}

/* A text image says itself what it takes. */
static uint64_t said_bytes(const char *text, const char *key)
{
	const char *at = text != NULL ? strstr(text, key) : NULL;

	return at != NULL ? strtoull(at + strlen(key), NULL, 10) * SIM_MIB : 0;
}

CUresult sim_cuModuleLoadData(CUmodule *out, const void *image)
{
	CUmodule module;
	CUcontext ctx;
	bool fits;

	NEED(drv_current(&ctx));
	if (out == NULL || image == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (*(const char *)image == '\0')
		return (CUresult)SIM_CUDA_ERROR_INVALID_IMAGE;
	module = calloc(1, sizeof(*module));
	if (module != NULL && !is_binary(image)) {
		module->text = strdup(image);
		if (module->text == NULL) {
			free(module);
			module = NULL;
		}
	}
	if (module == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->ctx = ctx;
	module->bytes = said_bytes(module->text, "simgpu_module_mib=");
	module->launch_bytes = said_bytes(module->text, "simgpu_launch_mib=");
	module->lazy_bytes = said_bytes(module->text, "simgpu_lazy_mib=");
	drv_lock();
	fits = drv_grow(ctx, module->bytes);
	if (fits) {
		module->next = modules;
		modules = module;
		*out = module;
	} else {
		free(module->text);
		free(module);
	}
	return drv_unlock(fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult sim_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, int *options,
				void **values)
{
	if (count != 0 && (options == NULL || values == NULL))
		return CUDA_ERROR_INVALID_VALUE;
	return sim_cuModuleLoadData(module, image);
}

CUresult sim_cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return sim_cuModuleLoadData(module, image);
}

CUresult sim_cuModuleLoad(CUmodule *module, const char *path)
{
	char text[65536];
	CUcontext ctx;
	size_t n;
	FILE *file;

	NEED(drv_current(&ctx));
	if (module == NULL || path == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	file = fopen(path, "re");
	if (file == NULL)
		return (CUresult)301; /* FILE_NOT_FOUND */
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = '\0';
	return sim_cuModuleLoadData(module, text);
}

static CUresult known(CUmodule module) /* with the lock held */
{
	for (CUmodule m = modules; m != NULL; m = m->next)
		if (m == module)
			return m->ctx->dead ? (CUresult)SIM_CUDA_ERROR_CONTEXT_IS_DESTROYED
					    : CUDA_SUCCESS;
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuModuleUnload(CUmodule module)
{
	CUresult result;

	NEED(drv_ready());
	drv_lock();
	result = known(module);
	if (result != CUDA_SUCCESS)
		return drv_unlock(result);
	for (CUmodule *at = &modules; *at != NULL; at = &(*at)->next)
		if (*at == module) {
			*at = module->next;
			break;
		}
	drv_shrink(module->ctx, module->bytes);
	while (module->functions != NULL) {
		CUfunction function = module->functions;

		module->functions = function->next;
		free(function);
	}
	free(module->text);
	free(module);
	return drv_unlock(CUDA_SUCCESS);
}

/* Takes what was put off. With the lock held, like what follows. */
static CUresult load(CUmodule module)
{
	if (!drv_grow(module->ctx, module->lazy_bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->bytes += module->lazy_bytes;
	module->lazy_bytes = 0;
	return CUDA_SUCCESS;
}

static CUresult handle_of(CUfunction *out, CUmodule module, const char *name)
{
	CUfunction function = module->functions;

	while (function != NULL && strcmp(function->name, name) != 0)
		function = function->next;
	if (function == NULL) {
		if (module->text != NULL && strstr(module->text, name) == NULL)
			return CUDA_ERROR_NOT_FOUND;
		function = calloc(1, sizeof(*function) + strlen(name) + 1);
		if (function == NULL)
			return CUDA_ERROR_OUT_OF_MEMORY;
		strcpy(function->name, name);
		function->module = module;
		function->busy = strncmp(name, BUSY_PREFIX, strlen(BUSY_PREFIX)) == 0;
		function->next = module->functions;
		module->functions = function;
	}
	*out = function;
	return CUDA_SUCCESS;
}

CUresult sim_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	CUresult result;

	NEED(drv_ready());
	if (function == NULL || name == NULL || name[0] == '\0')
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	result = known(module);
	if (result == CUDA_SUCCESS)
		result = handle_of(function, module, name);
	if (result == CUDA_SUCCESS)
		result = load(module);
	return drv_unlock(result);
}

/* The only one that is known of a text without looking for it is the first. It is not loaded by this. */
CUresult sim_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
	CUresult result;
	char name[64];

	NEED(drv_ready());
	if (functions == NULL || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	result = known(module);
	if (result == CUDA_SUCCESS && (module->text == NULL || sscanf(module->text, "%63s", name) != 1))
		result = CUDA_ERROR_NOT_FOUND;
	if (result == CUDA_SUCCESS)
		result = handle_of(functions, module, name);
	return drv_unlock(result);
}

CUresult sim_cuFuncLoad(CUfunction function)
{
	NEED(drv_ready());
	if (function == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	drv_lock();
	return drv_unlock(load(function->module));
}

CUresult sim_cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
	NEED(drv_ready());
	if (value == NULL || attribute < 0 || attribute > 15)
		return CUDA_ERROR_INVALID_VALUE;
	if (function == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	*value = attribute == 0 ? 1024 : attribute == 8 ? function->shared_bytes : 0;
	return CUDA_SUCCESS;
}

CUresult sim_cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
	NEED(drv_ready());
	if (function == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	if (attribute == 8)
		function->shared_bytes = value;
	return CUDA_SUCCESS;
}

/* What kernels need that allocate or print comes with the first of them. With the lock held. */
static bool first_run(CUmodule module)
{
	if (!drv_grow(module->ctx, module->launch_bytes))
		return false;
	module->bytes += module->launch_bytes;
	module->launch_bytes = 0;
	return true;
}

static CUresult launch(CUfunction function, const unsigned *grid, const unsigned *block,
		       CUstream stream, void **params, void **extra)
{
	uint64_t ns = 0;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (function == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	for (int i = 0; i < 3; i++)
		if (grid[i] == 0 || block[i] == 0)
			return CUDA_ERROR_INVALID_VALUE;
	if ((uint64_t)block[0] * block[1] * block[2] > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (params != NULL && extra != NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (function->busy) {
		if (params == NULL || params[0] == NULL)
			return CUDA_ERROR_INVALID_VALUE;
		ns = *(const unsigned *)params[0] * 1000ull;
	}
	drv_lock();
	NEED(drv_unlock(drv_limits_apply(ctx) && first_run(function->module) ? CUDA_SUCCESS
									     : CUDA_ERROR_OUT_OF_MEMORY));
	return drv_enqueue(stream, ns);
}

CUresult sim_cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
			    unsigned int bx, unsigned int by, unsigned int bz,
			    unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
	(void)shared_bytes;
	return launch(function, (unsigned[]){ gx, gy, gz }, (unsigned[]){ bx, by, bz }, stream,
		      params, extra);
}

CUresult sim_cuLaunchKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy,
				 unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
				 unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
	return sim_cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared_bytes, drv_ptsz(stream),
				  params, extra);
}

CUresult sim_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	NEED(drv_ready());
	if (config == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return launch(function, &config->gridDimX, &config->blockDimX, config->hStream, params, extra);
}

CUresult sim_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
				   void **extra)
{
	NEED(drv_ready());
	if (config == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return launch(function, &config->gridDimX, &config->blockDimX, drv_ptsz(config->hStream),
		      params, extra);
}

CUresult sim_cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy,
				       unsigned int gz, unsigned int bx, unsigned int by,
				       unsigned int bz, unsigned int shared_bytes, CUstream stream,
				       void **params)
{
	return sim_cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, params, NULL);
}

CUresult sim_cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy,
					    unsigned int gz, unsigned int bx, unsigned int by,
					    unsigned int bz, unsigned int shared_bytes,
					    CUstream stream, void **params)
{
	return sim_cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared_bytes, drv_ptsz(stream),
				  params, NULL);
}

/* The launches of old: the shape was set beforehand. */
CUresult sim_cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
	if (width <= 0 || height <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	return launch(function, (unsigned[]){ (unsigned)width, (unsigned)height, 1 },
		      (unsigned[]){ 1, 1, 1 }, stream, NULL, NULL);
}

CUresult sim_cuLaunchGrid(CUfunction function, int width, int height)
{
	return sim_cuLaunchGridAsync(function, width, height, NULL);
}

CUresult sim_cuLaunch(CUfunction function)
{
	return sim_cuLaunchGrid(function, 1, 1);
}

CUresult sim_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
						  unsigned int flags)
{
	if (list == NULL || count == 0 || flags > 3)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++)
		NEED(launch(list[i].function, &list[i].gridDimX, &list[i].blockDimX, list[i].hStream,
			    list[i].kernelParams, NULL));
	return CUDA_SUCCESS;
}
