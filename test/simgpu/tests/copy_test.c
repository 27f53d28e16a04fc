/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Copies of more than a line, and what keeps a stream waiting for the host. */
#include "harness.h"

#include <string.h>

/* Pinned memory is real: a corner of 2 × 3 × 2 of one box goes to another place in a second one. */
TEST(a_box_is_copied_row_by_row)
{
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			      .srcPitch = 8,
			      .srcHeight = 4,
			      .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			      .dstPitch = 16,
			      .dstHeight = 5,
			      .dstXInBytes = 3,
			      .dstY = 1,
			      .dstZ = 1,
			      .WidthInBytes = 2,
			      .Height = 3,
			      .Depth = 2};
	unsigned char *from, *to;

	start_cuda();
	OK(cuMemAllocHost_v2((void **)&from, 4096));
	OK(cuMemAllocHost_v2((void **)&to, 4096));
	for (int i = 0; i < 4096; i++)
		from[i] = (unsigned char)(i % 251);
	memset(to, 0xee, 4096);
	copy.srcHost = from;
	copy.dstDevice = (CUdeviceptr)(uintptr_t)to;
	OK(cuMemcpy3D_v2(&copy));
	for (int z = 0; z < 2; z++)
		for (int y = 0; y < 3; y++) {
			EQ(to[((z + 1) * 5 + y + 1) * 16 + 2], 0xee);
			EQ(to[((z + 1) * 5 + y + 1) * 16 + 3], from[(z * 4 + y) * 8]);
			EQ(to[((z + 1) * 5 + y + 1) * 16 + 4], from[(z * 4 + y) * 8 + 1]);
			EQ(to[((z + 1) * 5 + y + 1) * 16 + 5], 0xee);
		}
	copy.srcLOD = 1;
	EQ(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
	copy.srcLOD = 0;
	copy.dstPitch = 1;
	EQ(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
}

TEST(arrays_hold_what_they_are_long)
{
	CUDA_ARRAY_DESCRIPTOR shape = { 65536, 0, CU_AD_FORMAT_FLOAT, 2 };
	CUDA_ARRAY3D_DESCRIPTOR told;
	CUarray array;

	start_cuda();
	OK(cuArrayCreate_v2(&array, &shape));
	OK(cuArray3DGetDescriptor_v2(&told, array));
	EQ(told.Width, 65536);
	EQ(told.NumChannels, 2);
	EQ(cuArray3DGetDescriptor_v2(&told, (CUarray)(uintptr_t)8), CUDA_ERROR_INVALID_HANDLE);
	OK(cuMemcpyAtoA_v2(array, 0, array, 0, 8 * 65536));
	EQ(cuMemcpyAtoA_v2(array, 0, array, 0, 8 * 65536 + 1), CUDA_ERROR_INVALID_VALUE);
}

static void add_one(void *data)
{
	(*(int *)data)++;
}

static bool is_waiting(CUstream stream)
{
	return cuStreamQuery(stream) == (CUresult)SIM_CUDA_ERROR_NOT_READY;
}

/* For ten seconds, which no test takes. */
TEST(what_waits_for_the_host_holds_its_stream)
{
	CUstreamBatchMemOpParams op = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_64 };
	CUdeviceptr device;
	uint64_t *word;
	CUstream stream[4];
	int calls = 0;

	configure("host_us=10000000\nhost_gb_s=1\n");
	start_cuda();
	OK(cuMemAllocHost_v2((void **)&word, 64 * SIM_MIB));
	OK(cuMemAlloc_v2(&device, 64 * SIM_MIB));
	for (int i = 0; i < 4; i++)
		OK(cuStreamCreate(&stream[i], SIM_STREAM_NON_BLOCKING));
	OK(cuLaunchHostFunc(stream[0], add_one, &calls));
	EQ(calls, 1);
	TRUE(is_waiting(stream[0]));
	*word = 5;
	OK(cuStreamWaitValue32(stream[1], (CUdeviceptr)(uintptr_t)word, 5, CU_STREAM_WAIT_VALUE_EQ));
	TRUE(is_waiting(stream[1]));
	op.waitValue.address = (CUdeviceptr)(uintptr_t)word;
	op.waitValue.value64 = 4;
	OK(cuStreamBatchMemOp(stream[2], 1, &op, 0));
	TRUE(is_waiting(stream[2]));
	EQ(cuStreamBatchMemOp(stream[2], 0, &op, 0), CUDA_ERROR_INVALID_VALUE);
	TRUE(!is_waiting(stream[3]));
	for (int i = 0; i < 64; i++) /* 64 MiB take 67 ms */
		OK(cuMemcpyHtoDAsync_v2(device, word, 64 * SIM_MIB, stream[3]));
	TRUE(is_waiting(stream[3]));
}

TEST(what_is_captured_does_not_run)
{
	CUstream stream;
	CUgraph graph;
	int calls = 0;

	configure("host_us=10000000\nmemory_gb_s=1\n");
	start_cuda();
	OK(cuStreamCreate(&stream, SIM_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture_v2(stream, 0));
	OK(cuLaunchHostFunc(stream, add_one, &calls));
	OK(cuStreamEndCapture(stream, &graph));
	EQ(calls, 0);
	TRUE(!is_waiting(stream));
}
