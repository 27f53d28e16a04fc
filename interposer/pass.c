/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "pass.h"

#include "atomics.h"

/* The word: whether the pass is open, its number among the stream's, launches, and what is expected of them. */
#define NS_BITS 36
#define LAUNCHES_BITS 12
#define OPEN (1ull << 63)
#define NUMBER_SHIFT (NS_BITS + LAUNCHES_BITS)
#define NUMBERS (OPEN >> NUMBER_SHIFT)
#define WHOSE (UINT64_MAX << NUMBER_SHIFT)
#define NS_MASK ((1ull << NS_BITS) - 1)
#define LAUNCHES_MASK ((1u << LAUNCHES_BITS) - 1)

/* A forked child finds its memory wiped, and so its parent's pass closed. */
static __thread struct {
	struct vgpu_engine *engine;
	struct vgpu_stream *stream;
	CUcontext context;
	CUstream handle;
	uint64_t whose;
	uint64_t left_ns;
	uint32_t left;
} own;

void vgpu_pass_open(struct vgpu_engine *engine, struct vgpu_stream *stream, CUcontext context, CUstream handle,
		    uint32_t launches, uint64_t ns)
{
	own.engine = engine;
	own.stream = stream;
	own.context = context;
	own.handle = handle;
	own.left = launches < LAUNCHES_MASK ? launches : LAUNCHES_MASK;
	own.left_ns = ns < NS_MASK ? ns : NS_MASK;
	stream->passed_seen = 0;
	own.whose = OPEN | (++stream->passes_given % NUMBERS) << NUMBER_SHIFT;
	__atomic_store_n(&stream->passed, own.whose, __ATOMIC_RELEASE);
}

struct vgpu_passed vgpu_pass_close(struct vgpu_stream *stream)
{
	uint64_t word = GET(stream->passed) == 0 ? 0 : __atomic_exchange_n(&stream->passed, 0, __ATOMIC_ACQ_REL);

	/* What a late launch has left in a closed one is counted already. */
	if ((word & OPEN) == 0)
		return (struct vgpu_passed){0};
	return (struct vgpu_passed){.launches = (uint32_t)(word >> NS_BITS) & LAUNCHES_MASK, .expected_ns = word & NS_MASK};
}

bool vgpu_pass_is_open(const struct vgpu_stream *stream, uint32_t *launches)
{
	uint64_t word = __atomic_load_n(&stream->passed, __ATOMIC_ACQUIRE);

	*launches = (uint32_t)(word >> NS_BITS) & LAUNCHES_MASK;
	return (word & OPEN) != 0;
}

struct vgpu_engine *vgpu_pass_engine(CUcontext context, CUstream handle)
{
	if (own.stream == NULL || own.handle != handle || own.context != context || own.left == 0 ||
	    (GET(own.stream->passed) & WHOSE) != own.whose)
		return NULL;
	return own.engine;
}

void vgpu_pass_drop(void)
{
	own.stream = NULL;
}

bool vgpu_pass_covers(uint64_t expected_ns)
{
	return expected_ns <= own.left_ns;
}

bool vgpu_pass_count_one(uint64_t expected_ns)
{
	uint64_t one = 1ull << NS_BITS | expected_ns, word = __atomic_fetch_add(&own.stream->passed, one, __ATOMIC_ACQ_REL);

	own.left--;
	own.left_ns -= expected_ns;
	if ((word & WHOSE) == own.whose)
		return true;
	/* Somebody else's by now, unless that one has been closed as well, and it was counted there. */
	for (uint64_t whose = word & WHOSE, now = word + one; (whose & OPEN) != 0; ) {
		if (__atomic_compare_exchange_n(&own.stream->passed, &now, now - one, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return false;
		if ((now & WHOSE) != whose)
			return true;
	}
	return false;
}
