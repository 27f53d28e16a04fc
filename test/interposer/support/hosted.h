/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What programs do again and again on the virtual host. */
#ifndef VGPU_TEST_HOSTED_H
#define VGPU_TEST_HOSTED_H

#include "harness.h"

#include "streams/own.h"
#include "streams/streams.h"
#include "time/cost.h"
#include "virtual_host.h"

#define KERNEL 5u
#define ENGINE vgpu_engine(&virtual_process, 0)
#define CONTEXT ((CUcontext)(uintptr_t)0x100)

static inline struct vgpu_stream *stream_of(uint32_t stream)
{
	return vgpu_streams_find(ENGINE, CONTEXT, virtual_host_stream(stream));
}

static inline uint64_t expected_of(uint64_t kernel)
{
	return vgpu_cost_of(ENGINE->cost, vgpu_cost_key((uint32_t)kernel, kernel >> 32))->average_ns;
}

/* Launches into all of so many streams again and again, with that much to do in between. */
static inline void run(uint64_t for_ms, uint64_t kernel_ns, uint32_t streams, uint64_t pause_ns)
{
	uint64_t until_ns = virtual_host_now() + for_ms * MS;

	while (virtual_host_now() < until_ns) {
		for (uint32_t s = 1; s <= streams; s++)
			virtual_host_launch(s, KERNEL, kernel_ns);
		if (pause_ns != 0)
			virtual_host_works(pause_ns);
	}
}

/* What a kernel takes is known afterwards, and nothing is in flight. */
static inline void know(uint64_t kernel, uint64_t ns)
{
	for (int i = 0; i < 24; i++) {
		virtual_host_launch(1, kernel, ns);
		virtual_host_waits(1);
		virtual_host_works(MS);
	}
	CHECK_WITHIN(expected_of(kernel), ns, ns + ns / 20 + 100);
	virtual_host_works(20 * MS);
	CHECK_IS(ENGINE->load.in_flight, 0);
}

/* There are no leases now, so that each launch is seen. */
static inline void somebody_has_waited(void)
{
	ENGINE->load.waited = 1;
	ENGINE->load.ample = 0;
}

#endif
