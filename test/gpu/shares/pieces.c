/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "pieces.h"

#include "load.h"

#define CALIBRATE_US 20000u
#define CALIBRATE_LOOPS 8000000u

static CUcontext context;
static CUfunction spin;
static CUstream stream[MOST_STREAMS];
static CUdeviceptr device_block, other_block;
static void *host_block;

static int launch(CUstream on, unsigned int us, unsigned int loops)
{
	void *params[] = { &us, &loops };

	return (int)cu.cuLaunchKernel(spin, o.blocks, 1, 1, 32, 1, 1, 0, on, params, NULL);
}

int pieces_thread(void)
{
	return (int)cu.cuCtxSetCurrent(context);
}

int pieces_launch(CUstream on, unsigned int us)
{
	return launch(on, us, (unsigned int)(us * o.loops_per_us));
}

static void work_on_host(void *unused)
{
	uint64_t until = now_ns() + o.call_us * 1000u;

	(void)unused;
	while (now_ns() < until)
		;
}

static int move_rows(CUstream on)
{
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = other_block, .srcPitch = o.row_bytes,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = device_block, .dstPitch = o.row_bytes,
		.WidthInBytes = o.row_bytes / 2, /* half of each, so that they are rows */
		.Height = ((size_t)o.move_mib << 20) / o.row_bytes,
	};

	return (int)cu.cuMemcpy2DAsync_v2(&copy, on);
}

static int move_list(CUstream on)
{
	CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	CUdeviceptr to[MOST_LISTED], from[MOST_LISTED];
	size_t bytes[MOST_LISTED], first = 0, each = ((size_t)o.move_mib << 20) / o.list;

	for (unsigned int i = 0; i < o.list; i++) {
		to[i] = device_block + i * each;
		from[i] = other_block + i * each;
		bytes[i] = each;
	}
	return (int)cu.cuMemcpyBatchAsync_v2(to, from, bytes, o.list, &attributes, &first, 1, on);
}

static int move(CUstream on)
{
	if (o.list != 0)
		return move_list(on);
	return o.row_bytes != 0 ? move_rows(on)
				: (int)cu.cuMemcpyDtoDAsync_v2(device_block, other_block,
							       (size_t)o.move_mib << 20, on);
}

int piece_submit(uint64_t number, CUevent event, CUevent last)
{
	CUstream on = stream[number % o.streams];
	int error = o.chain && last != NULL ? (int)cu.cuStreamWaitEvent(on, last, 0) : 0;

	if (o.call_us != 0 && error == 0)
		error = (int)cu.cuLaunchHostFunc(on, work_on_host, NULL);
	if (o.copy_mib != 0 && error == 0)
		error = (int)cu.cuMemcpyHtoDAsync_v2(device_block, host_block, (size_t)o.copy_mib << 20, on);
	if (o.fill_mib != 0 && error == 0)
		error = (int)cu.cuMemsetD8Async(device_block, 0, (size_t)o.fill_mib << 20, on);
	if (o.move_mib != 0 && error == 0)
		error = move(on);
	for (unsigned int k = 0; k < o.kernels && error == 0; k++) {
		uint64_t until = now_ns() + o.gap_us * 1000u;

		error = pieces_launch(on, o.us);
		while (o.gap_us != 0 && now_ns() < until)
			;
	}
	return error != 0 ? error : (int)cu.cuEventRecord(event, on);
}

double pieces_calibrate(void)
{
	double best = 0;

	for (int i = 0; i < 20; i++) {
		uint64_t from = now_ns();
		double loops;

		if (launch(stream[0], CALIBRATE_US, CALIBRATE_LOOPS) != 0 ||
		    cu.cuStreamSynchronize(stream[0]) != 0)
			return 0;
		loops = CALIBRATE_LOOPS / ((double)(now_ns() - from) / 1000.0);
		best = loops > best ? loops : best;
	}
	return best;
}

int pieces_prepare(void)
{
	unsigned int most_mib = o.copy_mib > o.fill_mib ? o.copy_mib : o.fill_mib;
	int error = driver_begin(&context, &spin);

	if (error == 0 && o.list != 0 && cu.cuMemcpyBatchAsync_v2 == NULL)
		error = CUDA_ERROR_NOT_FOUND;
	most_mib = most_mib > o.move_mib ? most_mib : o.move_mib;
	for (unsigned int i = 0; i < o.streams && error == 0; i++)
		error = (int)cu.cuStreamCreate(&stream[i], STREAM_NON_BLOCKING);
	if (o.copy_mib != 0 && error == 0)
		error = (int)cu.cuMemHostAlloc(&host_block, (size_t)o.copy_mib << 20, 0);
	if (most_mib != 0 && error == 0)
		error = (int)cu.cuMemAlloc_v2(&device_block, (size_t)most_mib << 20);
	if (o.move_mib != 0 && error == 0)
		error = (int)cu.cuMemAlloc_v2(&other_block, (size_t)o.move_mib << 20);
	return error;
}
