/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The same search through the CUDA runtime, linked statically as nvcc does it by default: every
 * driver function is then found by cuGetProcAddress and never by a symbol. */
#include "search.h"

#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

const uint64_t granule = 2 * MIB;
void *held;
uint64_t held_bytes;

__global__ void fill(uint32_t *words, uint64_t count)
{
	for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < count; i += uint64_t(gridDim.x) * blockDim.x)
		words[i] = uint32_t(i * 2654435761u);
}

__global__ void compare(const uint32_t *words, uint64_t count, unsigned int *wrong)
{
	for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < count; i += uint64_t(gridDim.x) * blockDim.x)
		if (words[i] != uint32_t(i * 2654435761u))
			atomicAdd(wrong, 1u);
}

__device__ unsigned int wrong_words;

__global__ void use_heap(unsigned int *out)
{
	char *p = static_cast<char *>(malloc(64 + threadIdx.x));

	*out = p != nullptr;
	free(p);
}

int touch()
{
	unsigned int wrong = 0, *counter;

	if (cudaGetSymbolAddress(reinterpret_cast<void **>(&counter), wrong_words) != cudaSuccess ||
	    cudaMemset(counter, 0, sizeof(wrong)) != cudaSuccess)
		return 1;
	fill<<<1024, 256>>>(static_cast<uint32_t *>(held), held_bytes / 4);
	compare<<<1024, 256>>>(static_cast<uint32_t *>(held), held_bytes / 4, counter);
	if (cudaMemcpy(&wrong, counter, sizeof(wrong), cudaMemcpyDeviceToHost) != cudaSuccess)
		return 1;
	return wrong == 0 ? 0 : 1;
}

/* The module with the kernels is loaded at its first use, which is not to be the last moment. */
int warm()
{
	int error = int(cudaMalloc(&held, granule));

	held_bytes = granule;
	if (error == 0)
		error = touch();
	cudaFree(held);
	return error;
}

/* The runtime keeps its last error until somebody asks. */
int result_of(cudaError_t error)
{
	cudaGetLastError();
	return int(error);
}

int take_malloc(uint64_t bytes)
{
	held_bytes = bytes;
	return result_of(cudaMalloc(&held, bytes));
}

void give_malloc()
{
	cudaFree(held);
}

int take_managed(uint64_t bytes)
{
	held_bytes = bytes;
	return result_of(cudaMallocManaged(&held, bytes));
}

int take_pitch(uint64_t bytes)
{
	size_t pitch = 0;
	cudaError_t error = cudaMallocPitch(&held, &pitch, 65000, bytes / 65000);

	held_bytes = pitch * (bytes / 65000);
	return result_of(error);
}

int take_3d(uint64_t bytes)
{
	cudaPitchedPtr pointer = {};
	cudaError_t error = cudaMalloc3D(&pointer, make_cudaExtent(4096, 512, size_t(bytes / granule)));

	held = pointer.ptr;
	held_bytes = bytes;
	return result_of(error);
}

cudaMemPool_t default_pool()
{
	cudaMemPool_t pool = nullptr;

	cudaDeviceGetDefaultMemPool(&pool, 0);
	return pool;
}

int take_async(uint64_t bytes)
{
	cudaError_t error = cudaMallocAsync(&held, bytes, cudaStream_t(nullptr));

	held_bytes = bytes;
	if (error == cudaSuccess)
		error = cudaStreamSynchronize(nullptr);
	if (error != cudaSuccess)
		cudaMemPoolTrimTo(default_pool(), 0);
	return result_of(error);
}

void give_async()
{
	cudaFreeAsync(held, cudaStream_t(nullptr));
	cudaStreamSynchronize(nullptr);
	cudaMemPoolTrimTo(default_pool(), 0);
}

cudaArray_t array;
cudaMipmappedArray_t mipmapped;

int take_array(uint64_t bytes)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();

	return result_of(cudaMallocArray(&array, &format, 16384, bytes / (16384 * sizeof(float4))));
}

void give_array()
{
	cudaFreeArray(array);
}

int take_mipmapped(uint64_t bytes)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();

	return result_of(cudaMallocMipmappedArray(&mipmapped, &format, make_cudaExtent(512, 512, size_t(bytes / (4 * MIB))), 7,
						  cudaArrayLayered));
}

void give_mipmapped()
{
	cudaFreeMipmappedArray(mipmapped);
}

int take_heap(uint64_t bytes)
{
	unsigned int *out = nullptr;
	cudaError_t error = cudaDeviceSetLimit(cudaLimitMallocHeapSize, bytes);

	if (error == cudaSuccess && (error = cudaMalloc(reinterpret_cast<void **>(&out), 4)) == cudaSuccess) {
		use_heap<<<1, 1>>>(out);
		error = cudaGetLastError();
		if (error == cudaSuccess)
			error = cudaDeviceSynchronize();
	}
	if (error != cudaSuccess)
		cudaDeviceReset();
	return result_of(error == cudaErrorLaunchOutOfResources ? cudaErrorMemoryAllocation : error);
}

/* A heap that is there cannot be resized. */
void give_heap()
{
	cudaDeviceReset();
	cudaFree(nullptr);
}

/* Built with per-thread default streams, only the first paths are of interest. */
#ifdef PER_THREAD
#define SUFFIX ", per-thread stream"
const size_t tried = 3;
#else
#define SUFFIX ""
const size_t tried = 8;
#endif

path make(const char *name, uint64_t step, unsigned int flags, int (*take)(uint64_t), void (*give)(), int (*touch_it)(), uint64_t most = 0)
{
	path p = {};

	p.name = name;
	p.granule = step;
	p.flags = flags;
	p.most = most;
	p.start = touch_it != nullptr ? warm : nullptr;
	p.take = take;
	p.give = give;
	p.touch = touch_it;
	return p;
}

const path paths[] = {
	make("cudaMalloc" SUFFIX, granule, 0, take_malloc, give_malloc, touch),
	make("cudaMallocAsync" SUFFIX, granule, 0, take_async, give_async, touch),
	make("cudaMallocManaged" SUFFIX, granule, PATH_MANAGED, take_managed, give_malloc, touch),
	make("cudaMallocPitch", 32 * 65000, 0, take_pitch, give_malloc, touch),
	make("cudaMalloc3D", granule, 0, take_3d, give_malloc, touch),
	make("cudaMallocArray", granule, 0, take_array, give_array, nullptr, 16384ull * 16 * 65536),
	make("cudaMallocMipmappedArray", 4 * MIB, 0, take_mipmapped, give_mipmapped, nullptr, 4 * MIB * 2048),
	make("cudaDeviceSetLimit heap", 64 * MIB, 0, take_heap, give_heap, nullptr),
};

int mem_info(size_t *free_bytes, size_t *total_bytes)
{
	return result_of(cudaMemGetInfo(free_bytes, total_bytes));
}

int run(const path &p, uint64_t cap_mib)
{
	path_driver driver = {};
	cudaDeviceProp properties;
	char uuid[64];
	cudaError_t error = cudaFree(nullptr);
	int used;

	if (error == cudaSuccess)
		error = cudaGetDeviceProperties(&properties, 0);
	if (error != cudaSuccess) {
		path_absent(p.name, int(error), cudaGetErrorString(error));
		return 1;
	}
	used = std::snprintf(uuid, sizeof(uuid), "GPU-");
	for (int i = 0; i < 16; i++)
		used += std::snprintf(uuid + used, sizeof(uuid) - size_t(used), "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				      static_cast<unsigned int>(static_cast<unsigned char>(properties.uuid.bytes[i])));
	driver.mem_info = mem_info;
	driver.uuid = uuid;
	return path_search(&p, &driver, cap_mib);
}

} // namespace

int main(int argc, char **argv)
{
	const char *name = nullptr;
	uint64_t cap_mib = 0;

	for (int i = 1; i < argc; i++) {
		if (std::strcmp(argv[i], "--list") == 0) {
			for (size_t k = 0; k < tried; k++)
				std::puts(paths[k].name);
			return 0;
		}
		if (std::strcmp(argv[i], "--one") == 0 && i + 1 < argc)
			name = argv[++i];
		else if (std::strcmp(argv[i], "--cap") == 0 && i + 1 < argc)
			cap_mib = std::strtoull(argv[++i], nullptr, 10);
		else
			return 2;
	}
	for (const path &p : paths)
		if (name != nullptr && std::strcmp(p.name, name) == 0)
			return run(p, cap_mib);
	std::fprintf(stderr, "runtime: no path \"%s\"\n", name != nullptr ? name : "");
	return 2;
}
