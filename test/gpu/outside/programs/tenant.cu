// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0
//
// One tenant of a GPU, which counts its own kernels; see ../tenant.go.
//   tenant file=BOARD [ms=2] [host=MS [jit=1]] [depth=4] [kind=fma|free|managed|copy] [ctxs=1] [more=MS] [for=100] [send=SOCKET]
// ms is how long a kernel takes. With host it waits for each kernel and then keeps the host busy for so long (jit: half to one and a half of
// it); otherwise depth kernels are queued. With more it makes one more context each so many milliseconds, and keeps them. It ends when the board says
// so, or after so many seconds. Where the board has a kernel already, of another tenant, it takes that and measures none.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <dirent.h>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define TRY(call)                                                                            \
	do {                                                                                 \
		cudaError_t try_result = (call);                                             \
		if (try_result != cudaSuccess) {                                             \
			fprintf(stderr, "tenant: %s: %s\n", #call, cudaGetErrorString(try_result)); \
			_exit(9);                                                            \
		}                                                                            \
	} while (0)

// Words of 8 bytes of the board, and what is behind them.
enum { READY = 0, GO = 1, STOP = 2, KERNEL_MS = 3, LOOPS = 4, DONE = 8, REQUESTS = 24, PID = 26 };
static const size_t BOARD_BYTES = 1 << 20, LATENCIES_AT = 4096;
static const long MOST_LATENCIES = 200000;
static const int BLOCKS = 132 * 64, THREADS = 128;
static const size_t COPIED_BYTES = 512u << 20, PAGE_BYTES = 4096, BIG_PAGE_BYTES = 2u << 20;

static char *board_bytes;
static volatile uint64_t *board;
static std::mutex setup; // one context after the other measures its kernel, so that each does it alone
static std::atomic<int> ready{0};
static int given_loops;

static struct {
	std::string kind, send;
	double ms, host, more, seconds;
	int depth, contexts;
	bool jit;
} options;

static double now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The last block to end counts the kernel, where the host sees it at once.
__global__ void work(float *out, int loops, unsigned *ended, unsigned long long *count, volatile unsigned long long *shown)
{
	float a = threadIdx.x * 1e-3f, b = 1.0001f, c = 0.5f, d = blockIdx.x * 1e-6f;

	for (int i = 0; i < loops; i++) {
		a = a * b + c;
		c = c * b + d;
		d = d * b + a;
		b = b * 0.99999f + 1e-7f;
	}
	if (a + c + d == 12345.678f)
		out[0] = a;
	__syncthreads();
	if (threadIdx.x == 0 && atomicInc(ended, gridDim.x - 1) == gridDim.x - 1) {
		*count += 1;
		*shown = *count;
		__threadfence_system();
	}
}

__global__ void touch(char *memory, size_t bytes, int add)
{
	size_t step = (size_t)gridDim.x * blockDim.x;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i * 4096 < bytes; i += step)
		memory[i * 4096] += add;
}

// What one context has.
struct context {
	int number;
	cudaStream_t stream;
	float *out;
	unsigned *ended;
	unsigned long long *count;
	volatile unsigned long long *shown;
	int loops = 500;
	char *memory = nullptr, *host_memory = nullptr;
	std::vector<cudaEvent_t> queued;
	unsigned seed = 7;

	void launch()
	{
		work<<<BLOCKS, THREADS, 0, stream>>>(out, loops, ended, count, shown);
	}
};

static float timed(context &c, int kernels, cudaEvent_t begin, cudaEvent_t end)
{
	float ms;

	TRY(cudaEventRecord(begin, c.stream));
	for (int i = 0; i < kernels; i++)
		c.launch();
	TRY(cudaEventRecord(end, c.stream));
	TRY(cudaEventSynchronize(end));
	TRY(cudaEventElapsedTime(&ms, begin, end));
	return ms;
}

// Finds how many loops take the time that is wanted, and writes down how long such a kernel then takes.
static void calibrate(context &c)
{
	cudaEvent_t begin, end;
	float ms = 0;

	if (given_loops) {
		c.loops = given_loops;
		return;
	}
	TRY(cudaEventCreate(&begin));
	TRY(cudaEventCreate(&end));
	c.loops = 4000;
	for (int round = 0; round < 5; round++)
		ms = timed(c, 1, begin, end);
	c.loops = std::max(1, (int)(options.ms * (4000 / ms)));
	int kernels = std::max(3, (int)(60 / options.ms));
	double kernel_ms = timed(c, kernels, begin, end) / kernels;
	if (c.number == 0) {
		memcpy(board_bytes + 8 * KERNEL_MS, &kernel_ms, sizeof kernel_ms);
		board[LOOPS] = c.loops;
	}
}

static void prepare(context &c)
{
	TRY(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking));
	TRY(cudaMalloc(&c.out, 4096));
	TRY(cudaMalloc(&c.ended, 64));
	TRY(cudaMalloc(&c.count, 64));
	TRY(cudaMemset(c.ended, 0, 64));
	TRY(cudaMemset(c.count, 0, 64));
	c.shown = (volatile unsigned long long *)(board + DONE + c.number);
	if (options.kind == "fma")
		calibrate(c);
	if (options.kind == "managed") {
		TRY(cudaMallocManaged(&c.memory, COPIED_BYTES));
		memset(c.memory, 1, COPIED_BYTES);
	}
	if (options.kind == "copy") {
		TRY(cudaMalloc(&c.memory, COPIED_BYTES));
		TRY(cudaHostAlloc(&c.host_memory, COPIED_BYTES, 0));
	}
	c.queued.resize(options.depth);
	for (auto &event : c.queued)
		TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	TRY(cudaStreamSynchronize(c.stream));
	*c.shown = 0;
	TRY(cudaMemset(c.count, 0, 64));
	TRY(cudaDeviceSynchronize());
}

// Kinds that count their rounds themselves.
static bool round_of_memory(context &c, long round)
{
	if (options.kind == "managed") {
		touch<<<132, 256, 0, c.stream>>>(c.memory, COPIED_BYTES, 1);
		TRY(cudaStreamSynchronize(c.stream));
		c.memory[(round * PAGE_BYTES) % COPIED_BYTES] += 1;
		for (size_t at = 0; at < COPIED_BYTES; at += BIG_PAGE_BYTES)
			c.memory[at]++;
	} else if (options.kind == "free") {
		void *taken = nullptr;

		c.launch();
		TRY(cudaMalloc(&taken, 64 << 20));
		TRY(cudaFree(taken));
	} else if (options.kind == "copy") {
		TRY(cudaMemcpyAsync(c.memory, c.host_memory, COPIED_BYTES, cudaMemcpyHostToDevice, c.stream));
		TRY(cudaStreamSynchronize(c.stream));
	} else {
		return false;
	}
	*c.shown = round + 1;
	return true;
}

// One kernel, its latency, and then the host's own work: it sleeps where that is long enough, and spins for the rest.
static void request(context &c, long round)
{
	float *latencies = (float *)(board_bytes + LATENCIES_AT);
	double began = now();

	c.launch();
	TRY(cudaStreamSynchronize(c.stream));
	double ended = now();
	if (c.number == 0) {
		latencies[round % MOST_LATENCIES] = (float)((ended - began) * 1e3);
		board[REQUESTS] = round + 1;
	}
	double part = options.jit ? 0.5 + rand_r(&c.seed) / (double)RAND_MAX : 1;
	double until = now() + options.host / 1e3 * part;
	if (options.host >= 0.5) {
		double sleeps = until - now() - 0.0001;

		if (sleeps > 0)
			usleep((useconds_t)(sleeps * 1e6));
	}
	while (now() < until)
		;
}

static void run(context &c)
{
	double end = now() + options.seconds;

	for (long round = 0; !board[STOP] && now() < end; round++) {
		if (round_of_memory(c, round))
			continue;
		if (options.host > 0) {
			request(c, round);
			continue;
		}
		cudaEvent_t event = c.queued[round % options.depth];
		if (round >= options.depth)
			TRY(cudaEventSynchronize(event));
		c.launch();
		TRY(cudaEventRecord(event, c.stream));
	}
	TRY(cudaStreamSynchronize(c.stream));
}

static CUresult make_context()
{
	CUcontext made;

#if CUDA_VERSION >= 13000
	return cuCtxCreate(&made, nullptr, 0, 0);
#else
	return cuCtxCreate(&made, 0, 0);
#endif
}

// Until the driver refuses.
static void make_more()
{
	while (!board[GO] && !board[STOP])
		usleep(200);
	while (!board[STOP] && make_context() == CUDA_SUCCESS)
		usleep((useconds_t)(options.more * 1e3));
}

static void one(int number)
{
	context c;

	c.number = number;
	{
		std::lock_guard<std::mutex> alone(setup);
		if (number > 0) {
			CUresult result = make_context();

			if (result != CUDA_SUCCESS) {
				fprintf(stderr, "tenant: context %d: error %d\n", number, (int)result);
				_exit(7);
			}
		}
		prepare(c);
	}
	ready++;
	if (number == 0) {
		while (ready < options.contexts)
			usleep(200);
		board[READY] = 1;
	}
	while (!board[GO] && !board[STOP])
		usleep(200);
	run(c);
}

static void send_one(int to, int fd)
{
	char space[CMSG_SPACE(sizeof fd)] = {};
	iovec data{&fd, sizeof fd};
	msghdr message{};

	message.msg_iov = &data;
	message.msg_iovlen = 1;
	message.msg_control = space;
	message.msg_controllen = sizeof space;
	cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(head), &fd, sizeof fd);
	sendmsg(to, &message, 0);
}

// Each descriptor of the driver's control file, with its number here.
static void send_descriptors()
{
	sockaddr_un address{};
	int to = socket(AF_UNIX, SOCK_STREAM, 0);

	address.sun_family = AF_UNIX;
	strncpy(address.sun_path, options.send.c_str(), sizeof address.sun_path - 1);
	DIR *folder = opendir("/proc/self/fd");
	if (folder && connect(to, (sockaddr *)&address, sizeof address) == 0) {
		while (dirent *entry = readdir(folder)) {
			std::string link = std::string("/proc/self/fd/") + entry->d_name;
			char name[128] = {};

			if (readlink(link.c_str(), name, sizeof name - 1) > 0 && !strncmp(name, "/dev/nvidiactl", 14))
				send_one(to, atoi(entry->d_name));
		}
	}
	if (folder)
		closedir(folder);
	close(to);
}

static std::string option(int argc, char **argv, const char *name, const char *otherwise)
{
	size_t length = strlen(name);

	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], name, length) && argv[i][length] == '=')
			return argv[i] + length + 1;
	return otherwise;
}

int main(int argc, char **argv)
{
	options.kind = option(argc, argv, "kind", "fma");
	options.send = option(argc, argv, "send", "");
	options.ms = atof(option(argc, argv, "ms", "2").c_str());
	options.host = atof(option(argc, argv, "host", "0").c_str());
	options.jit = atoi(option(argc, argv, "jit", "0").c_str()) != 0;
	options.more = atof(option(argc, argv, "more", "0").c_str());
	options.seconds = atof(option(argc, argv, "for", "100").c_str());
	options.depth = atoi(option(argc, argv, "depth", "4").c_str());
	options.contexts = atoi(option(argc, argv, "ctxs", "1").c_str());
	int fd = open(option(argc, argv, "file", "").c_str(), O_RDWR);
	void *mapped = mmap(nullptr, BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || mapped == MAP_FAILED) {
		fprintf(stderr, "tenant: file= names no board\n");
		return 8;
	}
	board_bytes = (char *)mapped;
	board = (volatile uint64_t *)mapped;
	board[PID] = getpid();
	given_loops = (int)board[LOOPS];
	TRY(cudaFree(0));
	TRY(cudaHostRegister(board_bytes, BOARD_BYTES, cudaHostRegisterPortable | cudaHostRegisterMapped));
	std::vector<std::thread> threads;
	for (int i = 1; i < options.contexts; i++)
		threads.emplace_back(one, i);
	if (!options.send.empty())
		threads.emplace_back([] {
			while (!board[READY])
				usleep(1000);
			send_descriptors();
		});
	if (options.more > 0)
		threads.emplace_back(make_more);
	one(0);
	for (auto &thread : threads)
		thread.join();
	return 0;
}
