/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * With waits=1 every call that may wait for work on the real driver does: for all that lies in the current
 * context, or in all contexts where one of them ends. On an H200 (driver 580) cuMemFree, cuArrayDestroy,
 * cuModuleLoadData and others were seen to; of more NVIDIA's manuals say so. With waits=2 nobody else gets
 * into the driver meanwhile, as if it had a lock that the others want as well. A launch waits when its
 * kernel is loaded, that of a graph when it uses memory. */
#include "drv.h"

enum waits { WAITS_NOT, FOR_CONTEXT, FOR_ALL, ASKS_NOBODY };

#define OF_CONTEXT(F)                                                                                                 \
	F(cuMemAlloc) F(cuMemAlloc_v2) F(cuMemAllocManaged) F(cuMemAllocPitch) F(cuMemAllocPitch_v2) F(cuMemFree)     \
	F(cuMemFree_v2) F(cuMemAllocHost) F(cuMemAllocHost_v2) F(cuMemHostAlloc) F(cuMemFreeHost)                         \
	F(cuMemAllocAsync) F(cuMemAllocAsync_ptsz) F(cuMemAllocFromPoolAsync) F(cuMemAllocFromPoolAsync_ptsz)         \
	F(cuMemPoolCreate) F(cuMemPoolDestroy) F(cuMemPoolTrimTo) F(cuMemPoolSetAttribute) F(cuMemPoolSetAccess)      \
	F(cuMemCreate) F(cuMemRelease) F(cuMemMap) F(cuMemUnmap) F(cuMemSetAccess)                                    \
	F(cuArrayCreate) F(cuArrayCreate_v2) F(cuArray3DCreate) F(cuArray3DCreate_v2) F(cuArrayDestroy)               \
	F(cuMipmappedArrayCreate) F(cuMipmappedArrayDestroy)                                                          \
	F(cuIpcGetMemHandle) F(cuIpcOpenMemHandle) F(cuIpcOpenMemHandle_v2) F(cuIpcCloseMemHandle)                    \
	F(cuImportExternalMemory) F(cuDestroyExternalMemory)                                                          \
	F(cuGraphInstantiate) F(cuGraphInstantiate_v2) F(cuGraphInstantiateWithFlags) F(cuGraphInstantiateWithParams) \
	F(cuGraphInstantiateWithParams_ptsz) F(cuGraphUpload) F(cuGraphUpload_ptsz) F(cuGraphExecDestroy)             \
	F(cuDeviceGraphMemTrim)                                                                                       \
	F(cuModuleLoad) F(cuModuleLoadData) F(cuModuleLoadDataEx) F(cuModuleLoadFatBinary) F(cuModuleUnload)          \
	F(cuModuleGetFunction) F(cuModuleGetGlobal) F(cuModuleGetGlobal_v2) F(cuFuncLoad) F(cuLibraryLoadData)        \
	F(cuLibraryLoadFromFile) F(cuLibraryUnload) F(cuLibraryGetModule) F(cuLibraryGetKernel) F(cuKernelGetFunction) \
	F(cuLibraryGetGlobal) F(cuLibraryGetManaged) F(cuCtxSetLimit)                                                 \
	F(cuStreamDestroy) F(cuStreamDestroy_v2) F(cuEventDestroy) F(cuEventDestroy_v2)                               \
	F(cuMemsetD8_v2) F(cuMemcpyHtoD) F(cuMemcpyHtoD_v2) F(cuMemcpyDtoH) F(cuMemcpyDtoH_v2)
#define OF_ALL(F)                                                                                                     \
	F(cuCtxCreate) F(cuCtxCreate_v2) F(cuCtxCreate_v3) F(cuCtxCreate_v4) F(cuCtxDestroy) F(cuCtxDestroy_v2) F(cuCtxDetach) \
	F(cuDevicePrimaryCtxRelease) F(cuDevicePrimaryCtxRelease_v2) F(cuDevicePrimaryCtxReset)                       \
	F(cuDevicePrimaryCtxReset_v2) F(cuGreenCtxCreate) F(cuGreenCtxDestroy)
/* They look at what the thread or the library has. */
#define OF_NOBODY(F)                                                                                                  \
	F(cuCtxGetCurrent) F(cuCtxSetCurrent) F(cuCtxPushCurrent_v2) F(cuCtxPopCurrent_v2) F(cuGetProcAddress)        \
	F(cuGetProcAddress_v2) F(cuThreadExchangeStreamCaptureMode)

static const enum waits waits[SIM_CALLS] = {
#define ONE(symbol) [SIM_CALL_##symbol] = FOR_CONTEXT,
	OF_CONTEXT(ONE)
#undef ONE
#define ONE(symbol) [SIM_CALL_##symbol] = FOR_ALL,
	OF_ALL(ONE)
#undef ONE
#define ONE(symbol) [SIM_CALL_##symbol] = ASKS_NOBODY,
	OF_NOBODY(ONE)
#undef ONE
};

static pthread_mutex_t inside = PTHREAD_MUTEX_INITIALIZER;

static uint64_t ready_ns(CUcontext of)
{
	uint64_t ready = 0;

	for (CUcontext ctx = drv.contexts; ctx != NULL && ready != SIM_NEVER_NS; ctx = ctx->next) {
		uint64_t one = ctx->dead || (of != NULL && ctx != of) ? 0 : drv_context_ready_ns(ctx);

		ready = one > ready ? one : ready;
	}
	return ready;
}

static void wait_for(CUcontext of)
{
	uint64_t ready;

	if (sim_conf.waits == SIM_WAITS_ALONE)
		pthread_mutex_lock(&inside);
	drv_lock();
	while ((ready = ready_ns(of)) == SIM_NEVER_NS)
		drv_sleep_unlocked(SIM_NEVER_NS);
	drv_unlock(CUDA_SUCCESS);
	if (ready > sim_now_ns())
		drv_sleep_until(ready);
	if (sim_conf.waits == SIM_WAITS_ALONE)
		pthread_mutex_unlock(&inside);
}

void drv_waits_here(void)
{
	CUcontext ctx;

	if (sim_conf.waits != SIM_WAITS_NOT && drv_current(&ctx) == CUDA_SUCCESS)
		wait_for(ctx);
}

void drv_waits_before(enum sim_call call)
{
	if (drv_ready() != CUDA_SUCCESS)
		return;
	if (waits[call] == FOR_ALL) {
		wait_for(NULL);
	} else if (waits[call] == FOR_CONTEXT) {
		drv_waits_here();
	} else if (waits[call] == WAITS_NOT && sim_conf.waits == SIM_WAITS_ALONE) {
		pthread_mutex_lock(&inside);
		pthread_mutex_unlock(&inside);
	}
}
