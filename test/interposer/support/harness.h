/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A node with simulated GPUs and a job step on it, and test cases that run in a process each. */
#ifndef VGPU_TEST_HARNESS_H
#define VGPU_TEST_HARNESS_H

#include "api/cuda_types.h"
#include "api/layout.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define UUID0 "GPU-00000000-1111-2222-3333-00000000000a"
#define UUID1 "GPU-00000000-1111-2222-3333-00000000000b"

/* The tables' functions and those that the tests need besides. */
#define VGPU_CUDA(kind, symbol, base, since, variant, params, ...) CUresult symbol params;
#include "api/cuda.def"
#define VGPU_NVML(kind, symbol, params, ...) nvmlReturn_t symbol params;
#include "api/nvml.def"
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuGraphCreate(CUgraph *graph, unsigned int flags);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count);
CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
				  CUgraph child);
CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
				CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
			       CUdeviceptr pointer);
CUresult cuSimHeld(CUdevice device, size_t *own, size_t *all);
CUresult cuSimHighest(CUdevice device, size_t *bytes);
CUresult cuSimBusy(CUdevice device, unsigned long long *ns);
CUresult cuSimFailNext(unsigned int count);
/* Calls that once, in the next call of this name, while that is in the driver. */
CUresult cuSimWithin(const char *name, void (*what)(void));
CUresult cuSimDlsym(void *handle, const char *name, void **symbol); /* the driver's own */
CUresult cuSimAsked(const char *name, unsigned int *times);
nvmlReturn_t nvmlSimAsked(unsigned int *times); /* for lists of processes */
CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr wish,
			     unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size);
CUresult cuDriverGetVersion(int *version);

struct step {
	char folder[512];
	struct vgpu_limits *limits;
	struct vgpu_ledger *ledger;
};

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A folder of simulated GPUs of 4096 MiB, UUID0 and UUID1, whose contexts cost context_mib. */
void gpus(unsigned context_mib);
void remove_gpus(void);
/* Adds a line to the configuration of the simulated GPUs. */
void gpus_also(const char *line);

/* A job with a step of this id that may use so much of UUID0; its folder goes to VGPU_STEP_DIR.
 * A second step of the same job shares the ledger. */
struct step step_make(uint32_t job, uint32_t step_id, uint64_t step_mib, uint64_t job_mib);
void step_enter(const struct step *step);

/* The same step in a program that a case started. */
struct step step_of_environment(void);

/* Everything the ledger adds up to for UUID0, from the slots of live processes. */
uint64_t step_slots_bytes(const struct step *step);
/* The same as the ledger says it, which must be the same. */
uint64_t step_used_bytes(const struct step *step);

/* What the simulated driver itself has handed out on a device, asked outside of the interposer. */
uint64_t driver_used_bytes(int device);
/* The same without what the driver keeps for managed memory, beyond what the processes have. */
uint64_t driver_held_bytes(int device);

/* Initialises CUDA and makes the primary context of the device current. */
void cuda_begin(CUdevice ordinal);
/* The same for the second GPU, which is the step's only until CUDA is initialised. */
void cuda_begin_not_granted(const struct step *step);

extern int failures; /* of this case */
#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
			__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);                \
		}                                                                          \
	} while (0)
#define CHECK_IS(got, want)                                                                              \
	do {                                                                                             \
		unsigned long long got_ = (unsigned long long)(got), want_ = (unsigned long long)(want); \
		if (got_ != want_) {                                                                     \
			fprintf(stderr, "%s:%d: %s is %llu, not %llu\n", __FILE__, __LINE__, #got, got_, want_); \
			__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);                              \
		}                                                                                        \
	} while (0)
#define CHECK_WITHIN(got, least, most)                                                                   \
	do {                                                                                             \
		unsigned long long got_ = (got), least_ = (least), most_ = (most);                       \
		if (got_ < least_ || got_ > most_) {                                                     \
			fprintf(stderr, "%s:%d: %s is %llu, not %llu to %llu\n", __FILE__, __LINE__, #got, got_, least_, most_); \
			__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);                              \
		}                                                                                        \
	} while (0)

/* Programs with a sanitizer are slow, and have what others leave of the processors: the same cases without
 * one judge the clock, and what waits there waits that much longer. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CLOCK_IS_JUDGED = 0, PATIENCE = 12 };
#else
enum { CLOCK_IS_JUDGED = 1, PATIENCE = 1 };
#endif

/* Runs the case in a process of its own and prints PASS or FAIL. */
#define CASE(function) run_case(#function, function, 1)
/* The same for a case that judges by the clock: where the machine was busy with something else it does
 * not hold, and is run again, as other jobs, up to three times in all; with a sanitizer it is run once and
 * may come late. What hangs, crashes or races does not get another try. */
#define CASE_OF_TIME(function) run_case(#function, function, 3)
void run_case(const char *name, void (*function)(void), unsigned tries);
int summary(void);

/* Runs this test program again with the argument, preloaded or not as this one is; its exit status. */
int run_self(const char *argument);

/* What the library says goes nowhere from here on; what CHECK says is still printed. */
void library_quiet(void);

/* Standard error of a case, from here on, and what came there. */
void stderr_catch(void);
const char *stderr_caught(void);

#endif
