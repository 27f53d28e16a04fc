/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "streams/lease.h"

#include "api/symbols.h"
#include "base/atomics.h"
#include "driver/capture.h"
#include "time/cost.h"

/* The word: whether the lease is open, its number among the stream's, launches, and what is expected of
 * them. */
#define NS_BITS 36
#define LAUNCHES_BITS 12
#define OPEN (1ull << 63)
#define NUMBER_SHIFT (NS_BITS + LAUNCHES_BITS)
#define NUMBERS (OPEN >> NUMBER_SHIFT)
#define WHOSE (UINT64_MAX << NUMBER_SHIFT)
#define NS_MASK ((1ull << NS_BITS) - 1)
#define LAUNCHES_MASK ((1u << LAUNCHES_BITS) - 1)

/* A forked child finds its memory wiped, and so its parent's lease closed. */
__thread struct vgpu_lease vgpu_lease;

void vgpu_lease_open(struct vgpu_engine *engine, struct vgpu_stream *stream, CUcontext context,
		     CUstream handle, uint32_t launches, uint64_t ns)
{
	stream->leased_seen = 0;
	vgpu_lease = (struct vgpu_lease){
		.handle = handle,
		.left = launches < LAUNCHES_MASK ? launches : LAUNCHES_MASK,
		.left_ns = ns < NS_MASK ? ns : NS_MASK,
		.whose = OPEN | (++stream->leases_given % NUMBERS) << NUMBER_SHIFT,
		.stream = stream,
		.engine = engine,
		.context = context,
	};
	__atomic_store_n(&stream->leased, vgpu_lease.whose, __ATOMIC_RELEASE);
}

struct vgpu_leased vgpu_lease_close(struct vgpu_stream *stream)
{
	uint64_t word =
		GET(stream->leased) == 0 ? 0 : __atomic_exchange_n(&stream->leased, 0, __ATOMIC_ACQ_REL);

	/* What a late launch has left in a closed one is counted already. */
	if ((word & OPEN) == 0)
		return (struct vgpu_leased){0};
	return (struct vgpu_leased){.launches = (uint32_t)(word >> NS_BITS) & LAUNCHES_MASK,
				    .expected_ns = word & NS_MASK};
}

bool vgpu_lease_is_open(const struct vgpu_stream *stream, uint32_t *launches)
{
	uint64_t word = __atomic_load_n(&stream->leased, __ATOMIC_ACQUIRE);

	*launches = (uint32_t)(word >> NS_BITS) & LAUNCHES_MASK;
	return (word & OPEN) != 0;
}

/* NULL means the stream of whichever context is current, which the driver need not be asked where there is
 * only one. */
static bool is_of_context(struct vgpu_process *p)
{
	vgpu_fn_cuCtxGetCurrent *get_current;
	CUcontext context;

	if (GET(p->contexts_made) == 1)
		return true;
	get_current = VGPU_REAL(cuCtxGetCurrent);
	return get_current != NULL && get_current(&context) == CUDA_SUCCESS && context == vgpu_lease.context;
}

bool vgpu_lease_covers(struct vgpu_process *p, const void *what, uint64_t shape, uint64_t *expected_ns)
{
	if (vgpu_capture_possible(p) || !is_of_context(p) ||
	    (GET(vgpu_lease.stream->leased) & WHOSE) != vgpu_lease.whose ||
	    GET(vgpu_lease.engine->load.ample) == 0)
		return false;
	*expected_ns = vgpu_cost_leased(vgpu_lease.engine->cost,
					vgpu_cost_key((uint64_t)(uintptr_t)what, shape), vgpu_lease.left_ns);
	return *expected_ns != 0;
}

void vgpu_lease_drop(void)
{
	vgpu_lease.left = 0;
}

void vgpu_lease_drop_if_shared(void)
{
	if (vgpu_lease.left != 0 && GET(vgpu_lease.engine->load.turns.neighbours) != 0)
		vgpu_lease_drop();
}

bool vgpu_lease_count_one(uint64_t expected_ns)
{
	uint64_t one = 1ull << NS_BITS | expected_ns,
		 word = __atomic_fetch_add(&vgpu_lease.stream->leased, one, __ATOMIC_ACQ_REL);

	vgpu_lease.left--;
	vgpu_lease.left_ns -= expected_ns;
	if ((word & WHOSE) == vgpu_lease.whose)
		return true;
	/* Somebody else's by now, unless that one has been closed as well, and it was counted there. */
	for (uint64_t whose = word & WHOSE, now = word + one; (whose & OPEN) != 0;) {
		if (__atomic_compare_exchange_n(&vgpu_lease.stream->leased, &now, now - one, 0,
						__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return false;
		if ((now & WHOSE) != whose)
			return true;
	}
	return false;
}
