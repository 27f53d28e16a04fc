/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What else happens while a call that can make a pool grow is in the driver, and pools that do not do as
 * they should. What happens meanwhile is called from within the driver, so that nothing depends on chance. */
#include "harness.h"

#define CHUNK (32 * MIB)
#define RELEASE_THRESHOLD 4

static struct step step;
static CUstream stream;
static CUmemoryPool pool;

static uint64_t charged(void)
{
	CHECK_IS(step.ledger->step[0].used_bytes[0], step.ledger->used_bytes[0]);
	return step_used_bytes(&step);
}

static void begin(uint64_t limit_mib, const char *also)
{
	gpus(0);
	if (also != NULL)
		gpus_also(also);
	step = step_make(3000 + (uint32_t)getpid(), 0, limit_mib, limit_mib);
	cuda_begin(0);
	CHECK_IS(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
	CHECK_IS(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
}

/* ---- what graphs hold ---- */

static CUgraphExec graph_of(size_t bytes, bool keeps)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
					     .bytesize = bytes};
	CUgraphNode taken, freed;
	CUgraphExec exec = NULL;
	CUgraph graph;

	CHECK_IS(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphAddMemAllocNode(&taken, graph, NULL, 0, &params), CUDA_SUCCESS);
	if (!keeps)
		CHECK_IS(cuGraphAddMemFreeNode(&freed, graph, &taken, 1, params.dptr), CUDA_SUCCESS);
	CHECK_IS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	return exec;
}

static CUgraphExec second;
static bool launched_second;

/* All that the first graph had goes back while it is being launched again; it will take it anew. */
static void trim(void)
{
	CUdeviceptr a;

	CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK_IS(driver_held_bytes(0), 0);
	CHECK_IS(cuMemAlloc_v2(&a, 64 * MIB - CHUNK + 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAlloc_v2(&a, 64 * MIB - CHUNK), CUDA_SUCCESS);
}

static void a_trim_leaves_room_for_what_is_being_launched(void)
{
	CUgraphExec exec;

	begin(64, NULL);
	exec = graph_of(CHUNK, false);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK_IS(charged(), CHUNK);
	CHECK_IS(cuSimWithin("cuGraphLaunch", trim), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK_IS(charged(), 64 * MIB);
	CHECK_IS(driver_held_bytes(0), 64 * MIB);
}

/* Another graph, which keeps what it takes, is launched and through before the first one takes its own
 * again. */
static void trim_and_launch_another(void)
{
	CUdeviceptr a;

	CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(second, stream), CUDA_SUCCESS);
	launched_second = true;
	CHECK_IS(driver_held_bytes(0), CHUNK);
	CHECK_IS(charged(), 2 * CHUNK);
	CHECK_IS(cuMemAlloc_v2(&a, CHUNK + 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAlloc_v2(&a, CHUNK), CUDA_SUCCESS);
}

static void a_launch_that_is_through_leaves_room_for_one_that_is_not(void)
{
	CUgraphExec exec;

	begin(96, NULL);
	exec = graph_of(CHUNK, false);
	second = graph_of(CHUNK, true);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK_IS(cuSimWithin("cuGraphLaunch", trim_and_launch_another), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK(launched_second);
	CHECK_IS(charged(), driver_held_bytes(0));
	CHECK_IS(driver_held_bytes(0), 96 * MIB);
}

/* Between a launch and its look at what graphs now hold another one begins and grows: that look is old. */
static void launch_another(void)
{
	CHECK_IS(cuGraphLaunch(second, stream), CUDA_SUCCESS);
	launched_second = true;
}

static void an_old_answer_lowers_nothing_that_was_taken_since(void)
{
	CUgraphExec exec;

	begin(128, NULL);
	exec = graph_of(CHUNK, true);
	second = graph_of(CHUNK, true);
	CHECK_IS(cuSimWithin("cuDeviceGetGraphMemAttribute", launch_another), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK(launched_second);
	CHECK_IS(driver_held_bytes(0), 2 * CHUNK);
	CHECK_IS(charged(), 2 * CHUNK);
}

/* The same between the two looks of who only gives back. */
static void launch_another_soon(void)
{
	CHECK_IS(cuSimWithin("cuDeviceGetGraphMemAttribute", launch_another), CUDA_SUCCESS);
}

static void a_trim_lowers_nothing_that_was_taken_since(void)
{
	CUgraphExec exec;

	begin(128, NULL);
	exec = graph_of(CHUNK, false);
	second = graph_of(CHUNK, true);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK_IS(cuSimWithin("cuDeviceGetGraphMemAttribute", launch_another_soon), CUDA_SUCCESS);
	CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK(launched_second);
	CHECK_IS(driver_held_bytes(0), CHUNK);
	CHECK(charged() >= CHUNK);
}

/* ---- pools ---- */

static void a_pool_that_grows_by_more_is_charged_for_it(void)
{
	CUdeviceptr a;

	begin(128, "pool_more_mib=32");
	CHECK_IS(cuMemAllocAsync(&a, 10 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(driver_held_bytes(0), 2 * CHUNK);
	CHECK_IS(charged(), 2 * CHUNK);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(charged(), 0);
}

static void a_pool_that_grows_past_the_limit_gives_it_back(void)
{
	CUdeviceptr a;

	begin(48, "pool_more_mib=32");
	CHECK_IS(cuMemAllocAsync(&a, 10 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(driver_held_bytes(0), CHUNK);
	CHECK_IS(charged(), CHUNK);
	CHECK_IS(cuMemAlloc_v2(&a, 16 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAlloc_v2(&a, 16 * MIB), CUDA_SUCCESS);
}

static void a_pool_that_tells_nothing_is_charged_for_all_that_it_may_have_taken(void)
{
	CUdeviceptr a, b;

	begin(96, "pool_silent=1");
	CHECK_IS(cuMemAllocAsync(&a, 10 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(charged(), CHUNK);
	CHECK_IS(cuMemAllocAsync(&b, 60 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(charged(), 3 * CHUNK);
	CHECK(charged() >= driver_held_bytes(0));
	CHECK_IS(cuMemAlloc_v2(&a, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

static CUdeviceptr first;
static unsigned times;

/* While it is asked how much too much a pool holds, that goes, and something else takes its place. */
static void the_pool_is_emptied(void)
{
	CUdeviceptr a;

	/* The first two questions are what it holds, and whether there is something to give back. */
	if (times++ < 2) {
		CHECK_IS(cuSimWithin("cuMemPoolGetAttribute", the_pool_is_emptied), CUDA_SUCCESS);
		return;
	}
	CHECK_IS(cuMemFreeAsync(first, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
	CHECK_IS(driver_held_bytes(0), CHUNK);
	CHECK_IS(cuMemAlloc_v2(&a, 128 * MIB), CUDA_SUCCESS);
	CHECK_IS(charged(), 5 * CHUNK);
}

static void what_a_pool_has_given_back_meanwhile_is_not_charged_again(void)
{
	cuuint64_t all = UINT64_MAX;
	CUdeviceptr a;

	begin(256, "pool_more_mib=64");
	CHECK_IS(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &all), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&first, 2 * CHUNK, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
	CHECK_IS(charged(), 2 * CHUNK);
	CHECK_IS(cuSimWithin("cuMemPoolGetAttribute", the_pool_is_emptied), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, CHUNK, stream), CUDA_SUCCESS);
	CHECK_IS(times, 3);
	CHECK_IS(charged(), driver_held_bytes(0));
	CHECK_IS(charged(), 5 * CHUNK);
	CHECK_IS(step.ledger->refusals[0], 0);
}

/* ---- blocks ---- */

static void a_block_across_two_granules_is_charged_both(void)
{
	CUdeviceptr a, b;

	begin(64, "straddle=1");
	CHECK_IS(cuMemAlloc_v2(&a, 1000), CUDA_SUCCESS);
	CHECK_IS(driver_held_bytes(0), 4 * MIB);
	CHECK_IS(charged(), 4 * MIB);
	CHECK_IS(cuMemAlloc_v2(&b, MIB - 1), CUDA_SUCCESS);
	CHECK_IS(charged(), driver_held_bytes(0));
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(driver_held_bytes(0), 0);
	CHECK_IS(charged(), 0);
}

static void small_rows_are_charged_as_they_are(void)
{
	CUdeviceptr a;
	size_t pitch;

	begin(64, "pitch_bytes=32");
	CHECK_IS(cuMemAllocPitch_v2(&a, &pitch, 32, 1 << 17, 4), CUDA_SUCCESS);
	CHECK_IS(pitch, 32);
	CHECK_IS(driver_held_bytes(0), 4 * MIB);
	CHECK_IS(charged(), 4 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(charged(), 0);
}

int main(void)
{
	gpus(0);
	CASE(a_trim_leaves_room_for_what_is_being_launched);
	CASE(a_launch_that_is_through_leaves_room_for_one_that_is_not);
	CASE(an_old_answer_lowers_nothing_that_was_taken_since);
	CASE(a_trim_lowers_nothing_that_was_taken_since);
	CASE(a_pool_that_grows_by_more_is_charged_for_it);
	CASE(a_pool_that_grows_past_the_limit_gives_it_back);
	CASE(a_pool_that_tells_nothing_is_charged_for_all_that_it_may_have_taken);
	CASE(what_a_pool_has_given_back_meanwhile_is_not_charged_again);
	CASE(a_block_across_two_granules_is_charged_both);
	CASE(small_rows_are_charged_as_they_are);
	return summary();
}
