/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What older CUDA runtimes ask cuGetProcAddress for, of the functions that the interposer has. Seen by a
 * breakpoint there, in a program that calls cudaMemGetInfo; the lists are the same in the static and the
 * shared runtime. */
#ifndef VGPU_TEST_ASKED_H
#define VGPU_TEST_ASKED_H

struct asked {
	const char *name;
	int version;
	unsigned int flags; /* 2: the per-thread default stream */
};

/* libcudart 11.8.89, by the first version of cuGetProcAddress. */
static const struct asked asked_by_11_8[] = {
	{"cuArray3DCreate", 3020, 0}, {"cuArrayCreate", 3020, 0}, {"cuArrayDestroy", 2000, 0},
	{"cuCtxCreate", 3020, 0}, {"cuCtxDetach", 2000, 0}, {"cuCtxSetLimit", 3010, 0}, {"cuCtxSynchronize", 2000, 0},
	{"cuDeviceGraphMemTrim", 11040, 0}, {"cuDevicePrimaryCtxRelease", 7000, 0},
	{"cuDevicePrimaryCtxReset", 7000, 0}, {"cuDevicePrimaryCtxRetain", 7000, 0}, {"cuDeviceTotalMem", 3020, 0},
	{"cuEventSynchronize", 2000, 0}, {"cuGLCtxCreate", 3020, 0}, {"cuGetProcAddress", 11030, 0},
	{"cuGraphExecDestroy", 10000, 0}, {"cuGraphInstantiate", 10000, 0}, {"cuGraphInstantiate", 11000, 0},
	{"cuGraphInstantiateWithFlags", 11040, 0}, {"cuGraphLaunch", 10000, 0}, {"cuGraphLaunch", 10000, 2},
	{"cuGraphUpload", 11010, 0}, {"cuGraphUpload", 11010, 2}, {"cuInit", 2000, 0}, {"cuMemAlloc", 3020, 0},
	{"cuMemAllocAsync", 11020, 0}, {"cuMemAllocAsync", 11020, 2}, {"cuMemAllocFromPoolAsync", 11020, 0},
	{"cuMemAllocFromPoolAsync", 11020, 2}, {"cuMemAllocManaged", 6000, 0}, {"cuMemAllocPitch", 3020, 0},
	{"cuMemFree", 3020, 0}, {"cuMemFreeAsync", 11020, 0}, {"cuMemFreeAsync", 11020, 2}, {"cuMemGetInfo", 3020, 0},
	{"cuMemPoolCreate", 11020, 0}, {"cuMemPoolDestroy", 11020, 0}, {"cuMemPoolTrimTo", 11020, 0},
	{"cuMipmappedArrayCreate", 5000, 0}, {"cuMipmappedArrayDestroy", 5000, 0}, {"cuModuleGetFunction", 2000, 0},
	{"cuModuleLoad", 2000, 0}, {"cuModuleLoadData", 2000, 0}, {"cuModuleLoadFatBinary", 2000, 0},
	{"cuModuleUnload", 2000, 0}, {"cuStreamSynchronize", 2000, 0}, {"cuStreamSynchronize", 7000, 2},
	{"cuVDPAUCtxCreate", 3020, 0},
};

/* libcudart 12.4.127, by the second. */
static const struct asked asked_by_12_4[] = {
	{"cuArray3DCreate", 3020, 0}, {"cuArrayCreate", 3020, 0}, {"cuArrayDestroy", 2000, 0},
	{"cuCtxCreate", 3020, 0}, {"cuCtxDetach", 2000, 0}, {"cuCtxSetLimit", 3010, 0}, {"cuCtxSynchronize", 2000, 0},
	{"cuDeviceGraphMemTrim", 11040, 0}, {"cuDevicePrimaryCtxRelease", 7000, 0},
	{"cuDevicePrimaryCtxReset", 7000, 0}, {"cuDevicePrimaryCtxRetain", 7000, 0}, {"cuDeviceTotalMem", 3020, 0},
	{"cuEventSynchronize", 2000, 0}, {"cuGLCtxCreate", 3020, 0}, {"cuGetProcAddress", 11030, 0},
	{"cuGetProcAddress", 12000, 0}, {"cuGraphExecDestroy", 10000, 0}, {"cuGraphInstantiate", 10000, 0},
	{"cuGraphInstantiate", 11000, 0}, {"cuGraphInstantiateWithFlags", 11040, 0},
	{"cuGraphInstantiateWithParams", 12000, 0}, {"cuGraphInstantiateWithParams", 12000, 2},
	{"cuGraphLaunch", 10000, 0}, {"cuGraphLaunch", 10000, 2}, {"cuGraphUpload", 11010, 0},
	{"cuGraphUpload", 11010, 2}, {"cuInit", 2000, 0}, {"cuKernelGetFunction", 12000, 0},
	{"cuLibraryGetGlobal", 12000, 0}, {"cuLibraryGetKernel", 12000, 0}, {"cuLibraryGetManaged", 12000, 0},
	{"cuLibraryGetModule", 12000, 0}, {"cuLibraryLoadData", 12000, 0}, {"cuLibraryLoadFromFile", 12000, 0},
	{"cuLibraryUnload", 12000, 0}, {"cuMemAlloc", 3020, 0}, {"cuMemAllocAsync", 11020, 0},
	{"cuMemAllocAsync", 11020, 2}, {"cuMemAllocFromPoolAsync", 11020, 0}, {"cuMemAllocFromPoolAsync", 11020, 2},
	{"cuMemAllocManaged", 6000, 0}, {"cuMemAllocPitch", 3020, 0}, {"cuMemFree", 3020, 0},
	{"cuMemFreeAsync", 11020, 0}, {"cuMemFreeAsync", 11020, 2}, {"cuMemGetInfo", 3020, 0},
	{"cuMemPoolCreate", 11020, 0}, {"cuMemPoolDestroy", 11020, 0}, {"cuMemPoolTrimTo", 11020, 0},
	{"cuMipmappedArrayCreate", 5000, 0}, {"cuMipmappedArrayDestroy", 5000, 0}, {"cuModuleGetFunction", 2000, 0},
	{"cuModuleLoad", 2000, 0}, {"cuModuleLoadData", 2000, 0}, {"cuModuleLoadFatBinary", 2000, 0},
	{"cuModuleUnload", 2000, 0}, {"cuStreamSynchronize", 2000, 0}, {"cuStreamSynchronize", 7000, 2},
	{"cuVDPAUCtxCreate", 3020, 0},
};

#endif
