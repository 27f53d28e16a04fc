/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Slices of a GPU whose shares vgpud keeps: no turns, and nothing is held back. */
#include "slices.h"

static struct step a, b;
static struct worker *both[2];

static void begin(unsigned percent, uint32_t flags, uint32_t kept_by)
{
	gpus(0);
	a = slice_make(1, percent, flags);
	b = slice_make(2, 100 - percent, flags);
	slices_keep(&a, kept_by);
	both[0] = worker_start(&a, 1000, 1);
	both[1] = worker_start(&b, 1000, 1);
}

static void end(void)
{
	worker_end(both[0]);
	worker_end(both[1]);
}

static bool both_go_on(uint32_t launches)
{
	return worker_waits_for(both[0], launches_of(both[0]) + launches, 30000 * MS) &&
	       worker_waits_for(both[1], launches_of(both[1]) + launches, 30000 * MS);
}

/* Of turns that are taken there is something in the claims now and then. */
static bool takes_turns(const struct step *step, uint64_t for_ns)
{
	struct vgpu_claims *claims = slice_claims(step);
	uint64_t before = __atomic_load_n(&claims->claim[0].until_ns, __ATOMIC_RELAXED), since = now_ns();
	bool taken = false;

	while (!taken && now_ns() - since < for_ns) {
		taken = __atomic_load_n(&claims->claim[0].until_ns, __ATOMIC_RELAXED) != before;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	munmap(claims, sizeof(*claims));
	return taken;
}

static void elastic_slices_are_not_held_back(void)
{
	begin(5, VGPU_ELASTIC, VGPU_KEPT_BY_VGPUD);
	CHECK(both_go_on(200));
	CHECK(!takes_turns(&a, 200 * MS) && !takes_turns(&b, 1));
	/* Nothing of them passed the gate. */
	CHECK_IS(step_busy_ns(&a) + step_busy_ns(&b), 0);
	CHECK_IS(a.ledger->waited_ns[0] + b.ledger->waited_ns[0], 0);
	end();
}

/* Nor where another one has a share to keep. */
static void slices_without_a_cap_are_not_held_back(void)
{
	gpus(0);
	a = slice_make(1, 0, 0);
	b = slice_make(2, 40, 0);
	slices_keep(&a, VGPU_KEPT_BY_VGPUD);
	both[0] = worker_start(&a, 1000, 1);
	both[1] = worker_start(&b, 1000, 1);
	CHECK(both_go_on(100));
	CHECK(!takes_turns(&a, 200 * MS) && !takes_turns(&b, 1));
	CHECK_IS(step_busy_ns(&a) + step_busy_ns(&b), 0);
	end();
}

/* A cap neither: vgpud holds it. */
static void a_cap_is_not_held_here(void)
{
	begin(5, 0, VGPU_KEPT_BY_VGPUD);
	CHECK(both_go_on(200));
	CHECK(!takes_turns(&a, 200 * MS) && !takes_turns(&b, 1));
	CHECK_IS(step_busy_ns(&a) + step_busy_ns(&b), 0);
	CHECK_IS(a.ledger->waited_ns[0] + b.ledger->waited_ns[0], 0);
	end();
}

/* The configuration changes under programs that run, there and back. */
static void who_keeps_the_shares_may_change(void)
{
	begin(30, VGPU_ELASTIC, VGPU_KEPT_BY_LIBRARY);
	CHECK(both_go_on(20));
	CHECK(takes_turns(&a, 5000 * MS) && takes_turns(&b, 5000 * MS));
	slices_keep(&a, VGPU_KEPT_BY_VGPUD);
	CHECK(both_go_on(200));
	CHECK(!takes_turns(&a, 200 * MS) && !takes_turns(&b, 1));
	slices_keep(&a, VGPU_KEPT_BY_LIBRARY);
	CHECK(takes_turns(&a, 5000 * MS) && takes_turns(&b, 5000 * MS));
	CHECK(both_go_on(20));
	end();
}

int main(void)
{
	CASE(elastic_slices_are_not_held_back);
	CASE(slices_without_a_cap_are_not_held_back);
	CASE(a_cap_is_not_held_here);
	CASE(who_keeps_the_shares_may_change);
	return summary();
}
