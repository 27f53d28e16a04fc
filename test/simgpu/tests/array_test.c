/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <string.h>
#include <unistd.h>

static const CUDA_ARRAY3D_DESCRIPTOR cube = { 256, 256, 64, CU_AD_FORMAT_FLOAT, 1, 0 };

TEST(arrays_take_granules_and_end_with_their_context)
{
	CUDA_ARRAY3D_DESCRIPTOR sparse = cube;
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
	CUcontext context;
	CUarray a, b;
	CUmipmappedArray m;

	start_cuda();
	uint64_t before = used_mib() + 518;

	OK(cuCtxCreate_v2(&context, 0, 0));

	OK(cuArray3DCreate_v2(&a, &cube));
	EQ(used_mib(), before + 16);
	EQ(cuArrayGetMemoryRequirements(&needs, a, 0), CUDA_ERROR_INVALID_VALUE);
	sparse.Flags = CUDA_ARRAY3D_SPARSE;
	OK(cuArray3DCreate_v2(&b, &sparse));
	sparse.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
	OK(cuMipmappedArrayCreate(&m, &sparse, 3));
	EQ(used_mib(), before + 16);
	OK(cuMipmappedArrayGetMemoryRequirements(&needs, m, 0));
	TRUE(needs.size > 16 * SIM_MIB);
	EQ(cuArrayDestroy((CUarray)m), CUDA_ERROR_INVALID_HANDLE);
	OK(cuArrayDestroy(b));
	OK(cuCtxDestroy_v2(context));
	EQ(used_mib(), before - 518);
	EQ(cuArrayDestroy(a), CUDA_ERROR_INVALID_HANDLE);
}

TEST(modules_stacks_and_heaps_take_memory)
{
	CUmodule module;
	CUfunction function;
	size_t value;

	configure("context_mib=100");
	start_cuda();
	OK(cuModuleLoadData(&module, "k simgpu_module_mib=10 simgpu_lazy_mib=20"));
	EQ(used_mib(), 110);
	OK(cuModuleGetFunction(&function, module, "k"));
	EQ(used_mib(), 130);
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
	EQ(used_mib(), 130 + 264);
	OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 108 * SIM_MIB));
	EQ(used_mib(), 130 + 264);
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	EQ(used_mib(), 130 + 264 + 100 + 150); /* an H200 takes 150 MiB besides */
	EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1 << 30), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	EQ(value, 2048);
	OK(cuModuleUnload(module));
	EQ(used_mib(), 614);
	OK(cuDevicePrimaryCtxReset_v2(0));
	EQ(used_mib(), 0);
}

static void importer(struct peer *peer)
{
	CUipcMemHandle handle;
	CUdeviceptr pointer;
	uint64_t word[8], before;

	for (int i = 0; i < 8; i++)
		word[i] = peer_hear(peer);
	memcpy(&handle, word, sizeof(handle));
	start_cuda();
	before = used_mib();
	OK(cuIpcOpenMemHandle_v2(&pointer, handle, 1));
	EQ(used_mib(), before);
	EQ(cuMemFree_v2(pointer), CUDA_ERROR_INVALID_VALUE);
	OK(cuIpcCloseMemHandle(pointer));
	EQ(cuIpcCloseMemHandle(pointer), CUDA_ERROR_INVALID_VALUE);
	EQ(used_mib(), before);
}

TEST(memory_of_another_process_costs_nothing)
{
	struct peer peer = peer_start(importer);
	CUipcMemHandle handle;
	CUdeviceptr a, b;
	uint64_t word[8];

	start_cuda();
	OK(cuMemAlloc_v2(&a, 10 * SIM_MIB));
	OK(cuIpcGetMemHandle(&handle, a));
	EQ(cuIpcOpenMemHandle_v2(&b, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
	memcpy(word, &handle, sizeof(handle));
	for (int i = 0; i < 8; i++)
		peer_say(&peer, word[i]);
	EQ(peer_wait(&peer), 0);
	OK(cuMemFree_v2(a));
}

TEST(a_handle_that_a_process_imports_from_itself_is_the_same_memory)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemGenericAllocationHandle handle, again;
	int fd;

	start_cuda();
	uint64_t before = used_mib();

	OK(cuMemCreate(&handle, 10 * SIM_MIB, &prop, 0));
	OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	TRUE(again != handle);
	EQ(used_mib(), before + 10);
	OK(cuMemRelease(handle));
	EQ(used_mib(), before + 10);
	OK(cuMemRelease(again));
	EQ(used_mib(), before);
}
