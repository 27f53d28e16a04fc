/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Single decisions about turns: turn_slices.c tries what comes of them. */
#include "harness.h"
#include "time/turn.h"

#define US 1000ull
#define MS 1000000ull
#define BEGIN (100000 * 1000 * MS)

/* ---- how long ---- */

static void a_turn_has_its_part_of_a_frame(void)
{
	for (uint32_t weight = 1; weight <= 100; weight++) {
		for (uint32_t all = weight; all <= 300; all++) {
			uint64_t quantum = vgpu_turn_quantum(weight, all, VGPU_TURN_FRAME_NS);

			CHECK(quantum >= VGPU_TURN_LEAST_NS && quantum <= VGPU_TURN_FRAME_NS);
			CHECK(vgpu_turn_quantum(weight, all, VGPU_TURN_INTERACTIVE_FRAME_NS) <= quantum);
		}
	}
	CHECK_IS(vgpu_turn_quantum(1, 0, VGPU_TURN_FRAME_NS), VGPU_TURN_FRAME_NS);
}

/* What a slice does at once fits into its turn, if that does not make others wait for too long. */
static void an_interactive_frame_has_a_place_for_a_burst(void)
{
	for (uint32_t weight = 1; weight <= 100; weight++) {
		for (uint64_t burst = 0; burst <= 20 * MS; burst += 100 * US) {
			uint64_t frame = vgpu_turn_interactive_frame(weight, 100, burst);

			CHECK(frame >= VGPU_TURN_INTERACTIVE_FRAME_NS);
			CHECK(frame <= VGPU_TURN_INTERACTIVE_MOST_NS);
			CHECK(frame == VGPU_TURN_INTERACTIVE_MOST_NS ||
			      vgpu_turn_quantum(weight, 100, frame) >= burst);
		}
	}
	CHECK_IS(vgpu_turn_interactive_frame(50, 100, 5 * MS), 11250 * US);
	/* Whatever somebody says. */
	CHECK_IS(vgpu_turn_interactive_frame(0, 100, 5 * MS), VGPU_TURN_INTERACTIVE_MOST_NS);
	CHECK_IS(vgpu_turn_interactive_frame(50, 100, UINT64_MAX), VGPU_TURN_INTERACTIVE_MOST_NS);
}

/* ---- what one decides who has no turn ---- */

#define WANTS(since, who) {.wants_since_ns = since, .id = who}
#define SPARE(since, who) {.wants_since_ns = since, .id = who, .spare = true}
#define HOLDS(since, who) {.holds_since_ns = since, .id = who}

/* It wants since now, has number 2, and another one was last seen to hold a turn so long ago. */
static enum vgpu_turn beside(struct vgpu_turn_other other, uint64_t waited_ns, uint64_t held_ago_ns)
{
	const struct vgpu_turn_self self = {.wants_since_ns = BEGIN - waited_ns,
					    .held_ns = BEGIN - held_ago_ns,
					    .quantum_ns = 10 * MS,
					    .id = 2,
					    .wants = true};

	return vgpu_turn_decide(&self, &other, 1, BEGIN);
}

static void who_has_wanted_it_for_longest_takes_the_turn(void)
{
	const uint64_t grace = VGPU_TURN_GRACE_NS;

	CHECK_IS(beside((struct vgpu_turn_other){0}, MS / 2, 10 * MS), VGPU_TURN_FREE);
	/* They came later, or as soon and are behind. */
	CHECK_IS(beside((struct vgpu_turn_other)WANTS(BEGIN - MS / 4, 1), MS / 2, 10 * MS), VGPU_TURN_TAKE);
	CHECK_IS(beside((struct vgpu_turn_other)WANTS(BEGIN - MS / 2, 3), MS / 2, 10 * MS), VGPU_TURN_TAKE);
	CHECK_IS(beside((struct vgpu_turn_other)WANTS(BEGIN - MS / 2, 3), MS / 2, 0), VGPU_TURN_TAKE);
	/* They came before: they have a moment to take it from when both could. */
	CHECK_IS(beside((struct vgpu_turn_other)WANTS(BEGIN - MS, 3), MS / 2, 10 * MS), VGPU_TURN_WAIT);
	CHECK_IS(beside((struct vgpu_turn_other)WANTS(BEGIN - MS / 2, 1), MS / 2, 10 * MS), VGPU_TURN_WAIT);
	CHECK_IS(beside((struct vgpu_turn_other)WANTS(BEGIN - 20 * MS, 3), 10 * MS, 0), VGPU_TURN_WAIT);
	CHECK_IS(beside((struct vgpu_turn_other)WANTS(BEGIN - 20 * MS, 3), 10 * MS, grace - 1),
		 VGPU_TURN_WAIT);
	CHECK_IS(beside((struct vgpu_turn_other)WANTS(BEGIN - 20 * MS, 3), 10 * MS, grace), VGPU_TURN_TAKE);
	CHECK_IS(beside((struct vgpu_turn_other)WANTS(BEGIN - 20 * MS, 3), grace - 1, 10 * MS),
		 VGPU_TURN_WAIT);
	CHECK_IS(beside((struct vgpu_turn_other)WANTS(BEGIN - 20 * MS, 3), grace, 10 * MS), VGPU_TURN_TAKE);
	/* Whoever has it. */
	CHECK_IS(beside((struct vgpu_turn_other)HOLDS(BEGIN - 20 * MS, 3), 10 * MS, 0), VGPU_TURN_WAIT);
	/* What is left over comes last. */
	CHECK_IS(beside((struct vgpu_turn_other)SPARE(BEGIN - 20 * MS, 1), MS / 2, 10 * MS), VGPU_TURN_TAKE);
}

static void who_wants_nothing_takes_no_turn(void)
{
	const struct vgpu_turn_other other = WANTS(BEGIN - MS, 3);
	const struct vgpu_turn_self self = {.id = 2};

	CHECK_IS(vgpu_turn_decide(&self, &other, 1, BEGIN), VGPU_TURN_WAIT);
	CHECK_IS(vgpu_turn_decide(&self, &other, 0, BEGIN), VGPU_TURN_FREE);
}

/* ---- what one decides who has it ---- */

static enum vgpu_turn holding(struct vgpu_turn_self self, struct vgpu_turn_other other)
{
	self.holds_since_ns = BEGIN - 2 * MS;
	self.quantum_ns = 10 * MS;
	self.id = 2;
	return vgpu_turn_decide(&self, &other, 1, BEGIN);
}

static void of_two_who_have_begun_the_later_one_gives_way(void)
{
	const struct vgpu_turn_self self = {.wants = true}, spare = {.wants = true, .spare = true};
	const struct vgpu_turn_self busy = {.wants = true, .in_flight = true, .remaining_ns = 5};

	CHECK_IS(holding(self, (struct vgpu_turn_other)HOLDS(BEGIN - MS, 1)), VGPU_TURN_KEEP);
	CHECK_IS(holding(self, (struct vgpu_turn_other)HOLDS(BEGIN - 3 * MS, 3)), VGPU_TURN_LEAVE);
	CHECK_IS(holding(busy, (struct vgpu_turn_other)HOLDS(BEGIN - 3 * MS, 3)), VGPU_TURN_DRAIN);
	CHECK_IS(holding(self, (struct vgpu_turn_other)HOLDS(BEGIN - 2 * MS, 1)), VGPU_TURN_LEAVE);
	CHECK_IS(holding(self, (struct vgpu_turn_other)HOLDS(BEGIN - 2 * MS, 3)), VGPU_TURN_KEEP);
	CHECK_IS(holding(spare, (struct vgpu_turn_other)HOLDS(BEGIN - MS, 3)), VGPU_TURN_LEAVE);
	CHECK_IS(holding(self,
			 (struct vgpu_turn_other){.holds_since_ns = BEGIN - 3 * MS, .id = 1, .spare = true}),
		 VGPU_TURN_KEEP);
}

/* Otherwise it would be neither's. */
static void a_turn_ends_also_for_who_does_not_give_way(void)
{
	const struct vgpu_turn_other other = HOLDS(BEGIN - MS, 3);
	struct vgpu_turn_self self = {
		.holds_since_ns = BEGIN - 2 * MS, .quantum_ns = 2 * MS, .id = 2, .wants = true};

	CHECK_IS(vgpu_turn_decide(&self, &other, 1, BEGIN), VGPU_TURN_LEAVE);
	CHECK_IS(vgpu_turn_decide(&self, &other, 1, BEGIN - 1), VGPU_TURN_KEEP);
	self.full = true;
	CHECK_IS(vgpu_turn_decide(&self, &other, 1, BEGIN - 1), VGPU_TURN_LEAVE);
	self = (struct vgpu_turn_self){
		.holds_since_ns = BEGIN - 2 * MS, .quantum_ns = 10 * MS, .id = 2, .dry = true};
	CHECK_IS(vgpu_turn_decide(&self, &other, 1, BEGIN), VGPU_TURN_LEAVE);
}

static void what_is_left_over_is_given_up_for_whom_it_is(void)
{
	const struct vgpu_turn_self self = {.wants = true}, spare = {.wants = true, .spare = true};

	CHECK_IS(holding(spare, (struct vgpu_turn_other)WANTS(BEGIN - MS, 3)), VGPU_TURN_LEAVE);
	CHECK_IS(holding(spare, (struct vgpu_turn_other)SPARE(BEGIN - MS, 3)), VGPU_TURN_KEEP);
	CHECK_IS(holding(self, (struct vgpu_turn_other)WANTS(BEGIN - MS, 3)), VGPU_TURN_KEEP);
	/* Nobody who has a share left ends his turn for who has none. */
	CHECK_IS(holding((struct vgpu_turn_self){.wants = true, .full = true},
			 (struct vgpu_turn_other)SPARE(BEGIN - MS, 3)),
		 VGPU_TURN_KEEP);
}

static void a_turn_with_nothing_to_do_is_left(void)
{
	const uint64_t idle = VGPU_TURN_IDLE_NS;
	const struct vgpu_turn_other other = WANTS(BEGIN - MS, 3);

	CHECK_IS(holding((struct vgpu_turn_self){.idle_ns = idle}, other), VGPU_TURN_LEAVE);
	CHECK_IS(holding((struct vgpu_turn_self){.idle_ns = idle - 1}, other), VGPU_TURN_KEEP);
	CHECK_IS(holding((struct vgpu_turn_self){.idle_ns = idle, .wants = true}, other), VGPU_TURN_KEEP);
	CHECK_IS(holding((struct vgpu_turn_self){.idle_ns = idle, .in_flight = true, .remaining_ns = 1},
			 other),
		 VGPU_TURN_KEEP);
}

/* It wants more, and so does another one. */
static enum vgpu_turn decided(bool in_flight, uint64_t remaining_ns, uint64_t held_ns, bool full)
{
	const struct vgpu_turn_other other = {.wants_since_ns = BEGIN - MS, .id = 2};
	const struct vgpu_turn_self self = {.holds_since_ns = BEGIN - held_ns,
					    .quantum_ns = 10 * MS,
					    .remaining_ns = remaining_ns,
					    .id = 1,
					    .in_flight = in_flight,
					    .wants = true,
					    .full = full};

	return vgpu_turn_decide(&self, &other, 1, BEGIN);
}

static void a_turn_is_handed_on_when_its_work_is_done_and_not_before(void)
{
	CHECK_IS(decided(true, 2 * MS, 5 * MS, false), VGPU_TURN_KEEP);
	CHECK_IS(decided(true, 2 * MS, 10 * MS, false), VGPU_TURN_DRAIN);
	CHECK_IS(decided(true, 1, 10 * MS, false), VGPU_TURN_DRAIN);
	CHECK_IS(decided(false, 0, 10 * MS, false), VGPU_TURN_LEAVE);
}

static void a_turn_ends_when_its_share_is_used_up(void)
{
	const struct vgpu_turn_other wants = {.wants_since_ns = BEGIN - MS, .id = 2},
				     spare = {.wants_since_ns = BEGIN - MS, .id = 2, .spare = true},
				     nothing = {.id = 2};
	const struct vgpu_turn_self dry = {
		.holds_since_ns = BEGIN - MS, .quantum_ns = 10 * MS, .id = 1, .dry = true};

	CHECK_IS(vgpu_turn_decide(&dry, &wants, 1, BEGIN), VGPU_TURN_LEAVE);
	CHECK_IS(vgpu_turn_decide(&dry, &nothing, 1, BEGIN), VGPU_TURN_FREE);
	/* What is left over is for who has no share any more either. */
	CHECK_IS(vgpu_turn_decide(&dry, &spare, 1, BEGIN), VGPU_TURN_LEAVE);
}

static void a_turn_ends_when_nothing_more_fits(void)
{
	CHECK_IS(decided(true, 2 * MS, 5 * MS, true), VGPU_TURN_DRAIN);
	CHECK_IS(decided(false, 0, 5 * MS, true), VGPU_TURN_LEAVE);
	CHECK_IS(decided(false, 0, 5 * MS, false), VGPU_TURN_KEEP);
}

int main(void)
{
	CASE(a_turn_has_its_part_of_a_frame);
	CASE(an_interactive_frame_has_a_place_for_a_burst);
	CASE(who_has_wanted_it_for_longest_takes_the_turn);
	CASE(who_wants_nothing_takes_no_turn);
	CASE(of_two_who_have_begun_the_later_one_gives_way);
	CASE(a_turn_ends_also_for_who_does_not_give_way);
	CASE(what_is_left_over_is_given_up_for_whom_it_is);
	CASE(a_turn_with_nothing_to_do_is_left);
	CASE(a_turn_is_handed_on_when_its_work_is_done_and_not_before);
	CASE(a_turn_ends_when_its_share_is_used_up);
	CASE(a_turn_ends_when_nothing_more_fits);
	return summary();
}
