// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0
//
// Programs of the CUDA runtime that end, whatever is held back in their streams; see ../waits.sh.
//   waits-runtime PROGRAM | --list

#include <cooperative_groups.h>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define TRY(call)                                    \
	do {                                         \
		cudaError_t try_result = (call);     \
		if (try_result != cudaSuccess)       \
			return try_result;           \
	} while (0)

static const unsigned LOOPS = 250000; // some 500 us

__global__ void spin(unsigned loops, unsigned *sink)
{
	unsigned value = threadIdx.x;

	for (unsigned i = 0; i < loops; i++)
		value = value * 1664525u + 1013904223u;
	if (value == 12345u)
		*sink = value;
}

__global__ void parent(unsigned loops, unsigned *sink)
{
	if (threadIdx.x == 0)
		for (int i = 0; i < 2; i++)
			spin<<<1, 32>>>(loops, sink);
}

__global__ void together(unsigned loops, unsigned *sink)
{
	unsigned value = threadIdx.x;

	for (int step = 0; step < 3; step++) {
		for (unsigned i = 0; i < loops / 3; i++)
			value = value * 1664525u + 1013904223u;
		cooperative_groups::this_grid().sync();
	}
	if (value == 12345u)
		*sink = value;
}

__global__ void prints(unsigned loops, unsigned *sink)
{
	unsigned value = threadIdx.x;

	for (unsigned i = 0; i < loops; i++)
		value = value * 1664525u + 1013904223u;
	if (value == 12345u)
		printf("%u\n", value);
	void *block = malloc(64);
	if (block != nullptr && value == 54321u)
		*sink = *static_cast<unsigned *>(block);
	free(block);
}

static unsigned *sink;

static void rest(unsigned ms)
{
	timespec pause = {0, static_cast<long>(ms) * 1000000};

	nanosleep(&pause, nullptr);
}

static cudaError_t dynamic_parallelism()
{
	cudaStream_t stream;

	TRY(cudaStreamCreate(&stream));
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < 4; i++)
			parent<<<1, 32, 0, stream>>>(LOOPS / 2, sink);
		TRY(cudaGetLastError());
		TRY(cudaStreamSynchronize(stream));
		rest(round % 3 * 30);
	}
	return cudaDeviceSynchronize();
}

static cudaError_t cooperative()
{
	unsigned loops = LOOPS;
	void *params[] = {&loops, &sink};
	cudaStream_t stream[2];

	TRY(cudaStreamCreateWithFlags(&stream[0], cudaStreamNonBlocking));
	TRY(cudaStreamCreate(&stream[1]));
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < 4; i++)
			TRY(cudaLaunchCooperativeKernel(reinterpret_cast<void *>(together), dim3(8), dim3(64), params, 0, stream[i % 2]));
		if (round % 2 == 0)
			TRY(cudaDeviceSynchronize());
		rest(round % 3 * 30);
	}
	return cudaDeviceSynchronize();
}

static cudaError_t device_heap()
{
	TRY(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32u << 20));
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 4; i++)
			prints<<<1, 32>>>(LOOPS, sink);
		TRY(cudaGetLastError());
		/* That of the heap and of what is printed stand once such a kernel was launched. */
		TRY(cudaDeviceSetLimit(cudaLimitStackSize, 2048u + static_cast<size_t>(round) * 1024));
		TRY(cudaDeviceSynchronize());
		rest(round % 3 * 30);
	}
	return cudaDeviceSynchronize();
}

static cudaError_t capture(cudaGraphExec_t *exec, size_t mib)
{
	cudaStream_t stream, side;
	cudaEvent_t fork_event, join_event;
	cudaGraph_t graph;
	void *first, *second;

	TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	TRY(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
	TRY(cudaEventCreate(&fork_event));
	TRY(cudaEventCreate(&join_event));
	TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	TRY(cudaMallocAsync(&first, mib << 20, stream));
	TRY(cudaMemsetAsync(first, 1, mib << 20, stream));
	TRY(cudaEventRecord(fork_event, stream));
	TRY(cudaStreamWaitEvent(side, fork_event, 0));
	TRY(cudaMallocAsync(&second, mib << 20, side));
	spin<<<1, 32, 0, side>>>(LOOPS, sink);
	spin<<<1, 32, 0, stream>>>(LOOPS, sink);
	TRY(cudaFreeAsync(second, side));
	TRY(cudaEventRecord(join_event, side));
	TRY(cudaStreamWaitEvent(stream, join_event, 0));
	TRY(cudaFreeAsync(first, stream));
	TRY(cudaStreamEndCapture(stream, &graph));
	TRY(cudaGraphInstantiate(exec, graph, 0));
	TRY(cudaGraphDestroy(graph));
	TRY(cudaStreamDestroy(side));
	return cudaStreamDestroy(stream);
}

static cudaError_t graph_branches()
{
	cudaGraphExec_t exec[3];
	cudaStream_t stream[3];

	for (int i = 0; i < 3; i++) {
		TRY(capture(&exec[i], 16u << i));
		TRY(cudaStreamCreate(&stream[i]));
	}
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < 3; i++)
			TRY(cudaGraphLaunch(exec[i], stream[round % 3 == 0 ? 0 : (i + round) % 3]));
		if (round % 2 == 0)
			TRY(cudaDeviceSynchronize());
		if (round % 5 == 4)
			TRY(cudaDeviceGraphMemTrim(0));
		rest(round % 3 * 30);
	}
	return cudaDeviceSynchronize();
}

static cudaError_t pool_reuse()
{
	cudaStream_t stream[3];
	cudaEvent_t done;

	TRY(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
	for (int i = 0; i < 3; i++)
		TRY(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
	for (int round = 0; round < 20; round++) {
		void *block;
		cudaStream_t from = stream[round % 3], to = stream[(round + 1) % 3];

		TRY(cudaMallocAsync(&block, static_cast<size_t>(8 + round * 4) << 20, from));
		spin<<<1, 32, 0, from>>>(LOOPS, sink);
		TRY(cudaEventRecord(done, from));
		TRY(cudaStreamWaitEvent(to, done, 0));
		spin<<<1, 32, 0, to>>>(LOOPS, sink);
		TRY(cudaFreeAsync(block, to));
		if (round % 4 == 3)
			TRY(cudaDeviceSynchronize());
		rest(round % 5 == 4 ? 40 : 0);
	}
	return cudaDeviceSynchronize();
}

static cudaError_t in_thread(int number)
{
	void *block, *host;

	TRY(cudaSetDevice(0));
	TRY(cudaMallocHost(&host, 1u << 20));
	for (int round = 0; round < 10; round++) {
		TRY(cudaMalloc(&block, static_cast<size_t>(4 + number) << 20));
		spin<<<1, 32, 0, cudaStreamPerThread>>>(LOOPS / 2, sink);
		TRY(cudaMemcpyAsync(host, block, 1u << 20, cudaMemcpyDeviceToHost, cudaStreamPerThread));
		TRY(cudaFree(block));
		rest(round % 3 * 15);
	}
	return cudaFreeHost(host);
}

static cudaError_t threads()
{
	cudaError_t result[4];
	std::vector<std::thread> all;

	for (int i = 0; i < 4; i++)
		all.emplace_back([i, &result] { result[i] = in_thread(i); });
	for (std::thread &one : all)
		one.join();
	for (cudaError_t one : result)
		TRY(one);
	return cudaDeviceSynchronize();
}

// What one process sends another: its memory, and an event behind the work on it.
struct sent {
	cudaIpcMemHandle_t memory;
	cudaIpcEventHandle_t event;
};

static cudaError_t begin();

static cudaError_t receive(int from)
{
	cudaEvent_t event;
	sent handles;
	void *block;

	if (read(from, &handles, sizeof(handles)) != static_cast<ssize_t>(sizeof(handles)))
		return cudaErrorUnknown;
	TRY(begin());
	TRY(cudaIpcOpenEventHandle(&event, handles.event));
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 4; i++)
			spin<<<1, 32>>>(LOOPS, sink);
		TRY(cudaIpcOpenMemHandle(&block, handles.memory, cudaIpcMemLazyEnablePeerAccess));
		TRY(cudaStreamWaitEvent(nullptr, event, 0));
		spin<<<1, 32>>>(LOOPS, static_cast<unsigned *>(block));
		TRY(cudaIpcCloseMemHandle(block));
	}
	return cudaDeviceSynchronize();
}

static cudaError_t ipc()
{
	int pipe_ends[2], status = -1;
	cudaEvent_t event;
	sent handles;
	void *block;

	if (pipe(pipe_ends) != 0)
		return cudaErrorUnknown;
	pid_t child = fork(); // before CUDA begins
	if (child == 0)
		_exit(receive(pipe_ends[0]) == cudaSuccess ? 0 : 1);
	TRY(begin());
	TRY(cudaMalloc(&block, 8u << 20));
	TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
	for (int i = 0; i < 8; i++)
		spin<<<1, 32>>>(LOOPS, sink);
	TRY(cudaEventRecord(event));
	TRY(cudaIpcGetMemHandle(&handles.memory, block));
	TRY(cudaIpcGetEventHandle(&handles.event, event));
	if (write(pipe_ends[1], &handles, sizeof(handles)) != static_cast<ssize_t>(sizeof(handles)))
		return cudaErrorUnknown;
	waitpid(child, &status, 0);
	TRY(cudaDeviceSynchronize());
	return status == 0 ? cudaSuccess : cudaErrorUnknown;
}

static cudaError_t begin()
{
	return cudaMalloc(&sink, sizeof(*sink));
}

static const struct {
	const char *name;
	cudaError_t (*run)();
	bool begins; // CUDA itself
} programs[] = {
	{"dynamic-parallelism", dynamic_parallelism, false}, {"cooperative", cooperative, false}, {"device-heap", device_heap, false},
	{"graph-branches", graph_branches, false}, {"pool-reuse", pool_reuse, false}, {"threads", threads, false}, {"ipc", ipc, true},
};

int main(int argc, char **argv)
{
	for (const auto &program : programs) {
		if (argc == 2 && strcmp(argv[1], "--list") == 0)
			printf("%s\n", program.name);
		if (argc != 2 || strcmp(argv[1], program.name) != 0)
			continue;
		cudaError_t result = program.begins ? cudaSuccess : begin();
		if (result == cudaSuccess)
			result = program.run();
		printf("%s %d %s\n", program.name, static_cast<int>(result), cudaGetErrorString(result));
		return result == cudaSuccess ? 0 : 1;
	}
	return argc == 2 && strcmp(argv[1], "--list") == 0 ? 0 : 2;
}
