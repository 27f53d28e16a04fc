/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Long fills and copies within a device keep to the share like kernels; short ones, and copies from and
 * to the host, are let through. Copies that are more than a line are in copies.c. */
#include "gated.h"

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemAllocHost_v2(void **pointer, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);

static void long_fills_are_held_back(void)
{
	begin(1, 50);
	CHECK_GATED(cuMemsetD8(low_a, 1, MIB));
	CHECK_GATED(cuMemsetD16(low_a, 1, MIB / 2));
	CHECK_GATED(cuMemsetD32(low_a, 1, MIB / 4));
	CHECK_GATED(cuMemsetD8_v2(a, 1, MIB));
	CHECK_GATED(cuMemsetD16_v2(a, 1, MIB / 2));
	CHECK_GATED(cuMemsetD32_v2(a, 1, MIB / 4));
	CHECK_GATED(cuMemsetD8_v2_ptds(a, 1, MIB));
	CHECK_GATED(cuMemsetD16_v2_ptds(a, 1, MIB / 2));
	CHECK_GATED(cuMemsetD32_v2_ptds(a, 1, MIB / 4));
	CHECK_GATED(cuMemsetD8Async(a, 1, MIB, stream));
	CHECK_GATED(cuMemsetD16Async(a, 1, MIB / 2, stream));
	CHECK_GATED(cuMemsetD32Async(a, 1, MIB / 4, stream));
	CHECK_GATED(cuMemsetD8Async_ptsz(a, 1, MIB, NULL));
	CHECK_GATED(cuMemsetD16Async_ptsz(a, 1, MIB / 2, NULL));
	CHECK_GATED(cuMemsetD32Async_ptsz(a, 1, MIB / 4, NULL));
}

static void long_fills_of_rows_are_held_back(void)
{
	begin(2, 50);
	CHECK_GATED(cuMemsetD2D8(low_a, 2048, 1, 1024, 1024));
	CHECK_GATED(cuMemsetD2D16(low_a, 2048, 1, 512, 1024));
	CHECK_GATED(cuMemsetD2D32(low_a, 2048, 1, 256, 1024));
	CHECK_GATED(cuMemsetD2D8_v2(a, 2048, 1, 1024, 1024));
	CHECK_GATED(cuMemsetD2D16_v2(a, 2048, 1, 512, 1024));
	CHECK_GATED(cuMemsetD2D32_v2(a, 2048, 1, 256, 1024));
	CHECK_GATED(cuMemsetD2D8_v2_ptds(a, 2048, 1, 1024, 1024));
	CHECK_GATED(cuMemsetD2D16_v2_ptds(a, 2048, 1, 512, 1024));
	CHECK_GATED(cuMemsetD2D32_v2_ptds(a, 2048, 1, 256, 1024));
	CHECK_GATED(cuMemsetD2D8Async(a, 2048, 1, 1024, 1024, stream));
	CHECK_GATED(cuMemsetD2D16Async(a, 2048, 1, 512, 1024, stream));
	CHECK_GATED(cuMemsetD2D32Async(a, 2048, 1, 256, 1024, stream));
	CHECK_GATED(cuMemsetD2D8Async_ptsz(a, 2048, 1, 1024, 1024, NULL));
	CHECK_GATED(cuMemsetD2D16Async_ptsz(a, 2048, 1, 512, 1024, NULL));
	CHECK_GATED(cuMemsetD2D32Async_ptsz(a, 2048, 1, 256, 1024, NULL));
}

static void long_copies_within_a_device_are_held_back(void)
{
	begin(3, 50);
	CHECK_GATED(cuMemcpyDtoD(low_a, low_b, MIB));
	CHECK_GATED(cuMemcpyDtoD_v2(a, b, MIB));
	CHECK_GATED(cuMemcpyDtoD_v2_ptds(a, b, MIB));
	CHECK_GATED(cuMemcpyDtoDAsync(low_a, low_b, MIB, stream));
	CHECK_GATED(cuMemcpyDtoDAsync_v2(a, b, MIB, stream));
	CHECK_GATED(cuMemcpyDtoDAsync_v2_ptsz(a, b, MIB, NULL));
	CHECK_GATED(cuMemcpy(a, b, MIB));
	CHECK_GATED(cuMemcpy_ptds(a, b, MIB));
	CHECK_GATED(cuMemcpyAsync(a, b, MIB, stream));
	CHECK_GATED(cuMemcpyAsync_ptsz(a, b, MIB, NULL));
}

static void what_is_short_or_not_the_multiprocessors_passes(void)
{
	static char host[MIB];
	void *pinned;

	begin(4, 50);
	CHECK_IS(cuMemAllocHost_v2(&pinned, MIB), CUDA_SUCCESS);
	CHECK_FREE(cuMemsetD8_v2(a, 1, MIB - 1));
	CHECK_FREE(cuMemsetD32Async(a, 1, MIB / 4 - 1, stream));
	CHECK_FREE(cuMemsetD2D16_v2(a, 2048, 1, 512, 1023));
	CHECK_FREE(cuMemcpyDtoD_v2(a, b, MIB - 1));
	CHECK_FREE(cuMemcpyAsync(a, b, MIB - 1, stream));
	CHECK_FREE(cuMemcpy(a, (CUdeviceptr)(uintptr_t)host, MIB));
	CHECK_FREE(cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, a, MIB, stream));
	CHECK_FREE(cuMemcpyAsync(a, (CUdeviceptr)(uintptr_t)pinned, MIB, stream));
	CHECK_FREE(cuMemcpyHtoD_v2(a, host, MIB));
	CHECK_FREE(cuMemcpyHtoDAsync_v2(a, host, MIB, stream));
	CHECK_FREE(cuMemcpyDtoH_v2(host, a, MIB));
}

/* What part of a while the GPU was kept busy, in thousandths. */
static unsigned keep_filling(const size_t *mib, size_t sizes)
{
	uint64_t since = now_ns(), filled_mib = 0;

	for (size_t i = 0; now_ns() - since < 600000000; i++) {
		CHECK_IS(cuMemsetD8Async(a, 0, mib[i % sizes] * MIB, stream), CUDA_SUCCESS);
		filled_mib += mib[i % sizes];
	}
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
	return (unsigned)(filled_mib * (MIB / 4) * 1000 / (now_ns() - since));
}

static void fills_get_their_share(void)
{
	static const size_t like[] = {4}, unlike[] = {1, 16, 1, 2};
	unsigned got = 0;

	begin(5, 25);
	keep_filling(like, 1); /* what they take is learnt */
	for (int i = 0; i < 8 && got < 230; i++) {
		got = keep_filling(like, 1);
		CHECK(got <= 270);
	}
	CHECK(got >= 230);
	keep_filling(unlike, 4);
	got = keep_filling(unlike, 4);
	CHECK(got <= 270);
}

int main(void)
{
	gpus(0);
	CASE(long_fills_are_held_back);
	CASE(long_fills_of_rows_are_held_back);
	CASE(long_copies_within_a_device_are_held_back);
	CASE_OF_TIME(what_is_short_or_not_the_multiprocessors_passes);
	CASE_OF_TIME(fills_get_their_share);
	return summary();
}
