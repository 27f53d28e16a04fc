/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What launches cost: prints nanoseconds of a launch, of a launch of a graph of ten kernels and of a
 * synchronisation of an idle stream, each the median of 20 batches; and milliseconds of 45,000 launches by
 * three threads that signals interrupt. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 20
#define NODES 10
#define THREADS 3
#define LAUNCHES 15000
#define BETWEEN_EVENTS 500
#define TIMER_US 300
#define SIGNAL_US 200
#define NON_BLOCKING 1u
#define BLOCKING_SYNC 1u
#define CAPTURE_RELAXED 2

#define FUNCTIONS(F)                                                                                   \
	F(cuInit, (unsigned int flags))                                                                \
	F(cuDevicePrimaryCtxRetain, (void **context, int device))                                      \
	F(cuCtxSetCurrent, (void *context))                                                            \
	F(cuStreamCreate, (void **stream, unsigned int flags))                                         \
	F(cuStreamSynchronize, (void *stream))                                                         \
	F(cuStreamBeginCapture_v2, (void *stream, int mode))                                           \
	F(cuStreamEndCapture, (void *stream, void **graph))                                            \
	F(cuGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags))           \
	F(cuGraphLaunch, (void *exec, void *stream))                                                   \
	F(cuEventCreate, (void **event, unsigned int flags))                                           \
	F(cuEventRecord, (void *event, void *stream))                                                  \
	F(cuEventSynchronize, (void *event))                                                           \
	F(cuModuleLoadData, (void **module, const void *image))                                        \
	F(cuModuleGetFunction, (void **function, void *module, const char *name))                      \
	F(cuLaunchKernel, (void *function, unsigned int gx, unsigned int gy, unsigned int gz,          \
			   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,     \
			   void *stream, void **params, void **extra))

#define POINTER(name, params) static int(*name) params;
FUNCTIONS(POINTER)

static void *context, *kernel, *stream, *graph;
static volatile sig_atomic_t signals;

static void must(int error, const char *what)
{
	if (error == 0)
		return;
	fprintf(stderr, "launches: %s: %d\n", what, error);
	exit(1);
}

static int launch_in(void *in)
{
	return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, in, NULL, NULL);
}

static int launch(void)
{
	return launch_in(stream);
}

static int launch_graph(void)
{
	return cuGraphLaunch(graph, stream);
}

static int synchronise(void)
{
	return cuStreamSynchronize(stream);
}

static void prepare(void)
{
	static const char text[] =
		".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *module, *captured;

#define RESOLVE(name, params) must((*(void **)&name = library ? dlsym(library, #name) : NULL) == NULL, #name);
	FUNCTIONS(RESOLVE)
	must(cuInit(0), "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	must(cuModuleLoadData(&module, text), "cuModuleLoadData");
	must(cuModuleGetFunction(&kernel, module, "nothing"), "cuModuleGetFunction");
	must(cuStreamCreate(&stream, NON_BLOCKING), "cuStreamCreate");
	must(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED), "cuStreamBeginCapture");
	for (int i = 0; i < NODES; i++)
		must(launch(), "cuLaunchKernel");
	must(cuStreamEndCapture(stream, &captured), "cuStreamEndCapture");
	must(cuGraphInstantiateWithFlags(&graph, captured, 0), "cuGraphInstantiateWithFlags");
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Few calls, so that the launch queue does not fill, which would measure the GPU. The first batch warms
 * up. */
static double cost_ns(int (*call)(void), int calls)
{
	double batch[BATCHES];

	for (int b = -1; b < BATCHES; b++) {
		double from = now_ns();

		for (int i = 0; i < calls; i++)
			must(call(), "a call");
		batch[b < 0 ? 0 : b] = (now_ns() - from) / calls;
		must(synchronise(), "cuStreamSynchronize");
	}
	qsort(batch, BATCHES, sizeof(double), ascending);
	return batch[BATCHES / 2];
}

static void count(int number)
{
	(void)number;
	signals = signals + 1;
}

static void *launcher(void *done)
{
	void *own, *event;

	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	must(cuStreamCreate(&own, NON_BLOCKING), "cuStreamCreate");
	must(cuEventCreate(&event, BLOCKING_SYNC), "cuEventCreate");
	for (int i = 1; i <= LAUNCHES; i++) {
		must(launch_in(own), "cuLaunchKernel");
		if (i % BETWEEN_EVENTS == 0) {
			must(cuEventRecord(event, own), "cuEventRecord");
			must(cuEventSynchronize(event), "cuEventSynchronize");
		}
	}
	__atomic_store_n((int *)done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static double under_signals_ms(void)
{
	const struct itimerval timer = {{0, TIMER_US}, {0, TIMER_US}}, none = {{0, 0}, {0, 0}};
	const struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
	const int all[] = {SIGALRM, SIGPROF, SIGUSR2};
	pthread_t thread[THREADS];
	int done[THREADS] = {0};
	double from;

	for (int i = 0; i < 3; i++)
		must(sigaction(all[i], &action, NULL), "sigaction");
	must(setitimer(ITIMER_REAL, &timer, NULL), "setitimer");
	must(setitimer(ITIMER_PROF, &timer, NULL), "setitimer");
	from = now_ns();
	for (int i = 0; i < THREADS; i++)
		must(pthread_create(&thread[i], NULL, launcher, &done[i]), "pthread_create");
	for (int left = THREADS; left > 0; usleep(SIGNAL_US)) {
		left = 0;
		for (int i = 0; i < THREADS; i++)
			if (!__atomic_load_n(&done[i], __ATOMIC_ACQUIRE)) {
				pthread_kill(thread[i], SIGUSR2);
				left++;
			}
	}
	from = now_ns() - from;
	setitimer(ITIMER_REAL, &none, NULL);
	setitimer(ITIMER_PROF, &none, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	return from / 1e6;
}

int main(void)
{
	prepare();
	printf("launch %.1f", cost_ns(launch, 400));
	printf(" graph %.1f", cost_ns(launch_graph, 50));
	printf(" synchronise %.1f", cost_ns(synchronise, 200));
	printf(" signals %.2f", under_signals_ms());
	printf(" received %d\n", (int)signals);
	return 0;
}
