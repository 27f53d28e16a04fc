/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The rules of interposer/time/turn.h among several slices in virtual time: each looks when it happens to, at
 * what the others said last, and some do not follow the rules. */
#include "fuzz.h"
#include "harness.h"
#include "time/turn.h"

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define BEGIN (100000 * SECOND)
#define BELIEVED_NS (3 * MS) /* as interposer/admission/turns.c */
#define LOOK_NS (250 * US)
#define SLICES 12

enum manner { FOLLOWS, STOPPED, HOLDS_FOR_EVER, WANTS_FOR_EVER, SAYS_ANYTHING, HOLDS_IN_TURN, NEXT_IN_TURN };

struct slice {
	enum manner manner;
	uint32_t weight;
	uint64_t wants_ns, holds_ns, until_ns; /* what it says */
	uint64_t held_ns, may_ns, looked_ns, look_ns, done_ns, kernel_ns, used_ns, had_ns, dry_ns;
	struct vgpu_turn_patience patience;
	struct vgpu_turn_party party[SLICES]; /* the others as this one sees them, its own place left out */
	bool waited;
};

struct world {
	struct fuzz *f;
	uint64_t now, gpu_free_ns, together_ns;
	uint32_t count, all_weights;
	struct slice slice[SLICES];
};

static bool may_launch(const struct world *w, const struct slice *s)
{
	return s->manner == FOLLOWS && w->now < s->may_ns;
}

/* Work without end: as much as fits into the turn, kernel by kernel. */
static void launch(struct world *w, struct slice *s)
{
	while (may_launch(w, s) && (s->done_ns > w->now ? s->done_ns : w->now) <
					   (s->may_ns < w->now + 5 * MS ? s->may_ns : w->now + 5 * MS)) {
		uint64_t start = w->gpu_free_ns > w->now ? w->gpu_free_ns : w->now;

		s->done_ns = w->gpu_free_ns = start + s->kernel_ns;
		s->used_ns += s->kernel_ns;
		if (w->now - s->had_ns > s->dry_ns)
			s->dry_ns = w->now - s->had_ns;
		s->had_ns = w->now;
	}
}

static uint32_t listen(struct world *w, struct slice *s, struct vgpu_turn_other *other)
{
	uint32_t others = 0, self = (uint32_t)(s - w->slice);

	vgpu_turn_be_patient(&s->patience, s->party, w->count - 1, s->weight, w->all_weights,
			     w->now - s->looked_ns, s->waited);
	CHECK(s->patience.left_ns <= VGPU_PATIENCE_NS && s->patience.left_ns >= -(int64_t)VGPU_TURN_FRAME_NS);
	for (uint32_t i = 0; i + 1 < w->count; i++) {
		struct slice *o = &w->slice[i < self ? i : i + 1];
		bool believed = o->until_ns > w->now && !s->party[i].patience.lost && !s->patience.lost;

		CHECK(s->party[i].patience.left_ns <= VGPU_PATIENCE_NS &&
		      s->party[i].patience.left_ns >= -(int64_t)VGPU_TURN_FRAME_NS);
		s->party[i].held = believed && o->holds_ns != 0;
		if (believed)
			other[others++] = (struct vgpu_turn_other){.wants_since_ns = o->wants_ns,
								   .holds_since_ns = o->holds_ns,
								   .id = (uint32_t)(o - w->slice)};
	}
	for (uint32_t i = 0; i < others; i++)
		s->held_ns = other[i].holds_since_ns != 0 ? w->now : s->held_ns;
	s->looked_ns = w->now;
	return others;
}

static void look(struct world *w, struct slice *s)
{
	struct vgpu_turn_other other[SLICES];
	uint32_t others = listen(w, s, other);
	struct vgpu_turn_self self = {
		.wants_since_ns = s->wants_ns,
		.holds_since_ns = s->holds_ns,
		.held_ns = s->held_ns,
		.id = (uint32_t)(s - w->slice),
		.in_flight = s->done_ns > w->now,
		.quantum_ns = vgpu_turn_quantum(s->weight, w->all_weights, VGPU_TURN_FRAME_NS),
		.remaining_ns = s->done_ns > w->now ? s->done_ns - w->now : 0,
		.wants = true};

	s->until_ns = w->now + BELIEVED_NS;
	if (s->wants_ns == 0 && s->holds_ns == 0)
		self.wants_since_ns = s->wants_ns = w->now;
	s->waited = false;
	switch (vgpu_turn_decide(&self, other, others, w->now)) {
	case VGPU_TURN_FREE:
		s->holds_ns = s->holds_ns != 0 ? s->holds_ns : w->now;
		s->wants_ns = 0;
		s->may_ns = UINT64_MAX;
		break;
	case VGPU_TURN_TAKE:
		s->holds_ns = w->now;
		s->wants_ns = 0;
		s->may_ns = w->now + self.quantum_ns;
		break;
	case VGPU_TURN_KEEP:
		s->may_ns = s->holds_ns + self.quantum_ns;
		break;
	case VGPU_TURN_LEAVE:
		s->holds_ns = s->wants_ns = s->may_ns = 0;
		break;
	case VGPU_TURN_WAIT:
		s->waited = true;
		s->may_ns = 0;
		break;
	case VGPU_TURN_DRAIN:
		s->may_ns = 0;
		break;
	}
}

static void misbehave(struct world *w, struct slice *s)
{
	uint64_t turn = (w->now - BEGIN) / (30 * MS) % (w->count - 1) + 1;
	bool its = turn == (uint64_t)(s - w->slice), pulse = (w->now - BEGIN) / (200 * US) % 4 == 0;

	s->until_ns = w->now + BELIEVED_NS;
	if (s->manner == HOLDS_IN_TURN || s->manner == NEXT_IN_TURN) {
		s->holds_ns = its && (pulse || s->manner == HOLDS_IN_TURN);
		s->wants_ns = s->manner == NEXT_IN_TURN;
		return;
	}
	s->wants_ns = s->manner == HOLDS_FOR_EVER ? 0 : s->manner == WANTS_FOR_EVER ? 1 : fuzz_number(w->f);
	s->holds_ns = s->manner == HOLDS_FOR_EVER ? 1 : s->manner == WANTS_FOR_EVER ? 0 : fuzz_number(w->f);
}

static void run(struct world *w, uint64_t for_ns)
{
	uint64_t began = w->now;

	while (w->now - began < for_ns) {
		struct slice *next = &w->slice[0];
		uint32_t launching = 0;
		uint64_t then;

		for (uint32_t i = 1; i < w->count; i++)
			next = w->slice[i].look_ns < next->look_ns ? &w->slice[i] : next;
		for (uint32_t i = 0; i < w->count; i++)
			launching += may_launch(w, &w->slice[i]);
		then = next->look_ns > w->now ? next->look_ns : w->now;
		w->together_ns = launching > 1 ? w->together_ns + then - w->now : 0;
		/* Two begin at once, and then one gives way. */
		CHECK(w->together_ns <= VGPU_TURN_GRACE_NS);
		w->now = then;
		if (next->manner == FOLLOWS)
			look(w, next);
		else if (next->manner != STOPPED)
			misbehave(w, next);
		for (uint32_t i = 0; i < w->count; i++)
			launch(w, &w->slice[i]);
		next->look_ns = w->now + fuzz_between(w->f, LOOK_NS / 4, LOOK_NS);
	}
}

/* Each knows the others, as slices of a user each. */
static void introduce(struct world *w)
{
	for (uint32_t i = 0; i < w->count; i++) {
		w->slice[i].patience = VGPU_FRESH_PATIENCE;
		for (uint32_t k = 0; k + 1 < w->count; k++) {
			uint32_t other = k < i ? k : k + 1;

			w->slice[i].party[k] = (struct vgpu_turn_party){.uid = other,
									.weight = w->slice[other].weight,
									.patience = VGPU_FRESH_PATIENCE};
		}
	}
}

static struct world *begin(struct fuzz *f, uint32_t count)
{
	static struct world world;

	world = (struct world){.f = f, .now = BEGIN, .count = count};
	for (uint32_t i = 0; i < count; i++) {
		struct slice *s = &world.slice[i];

		*s = (struct slice){.kernel_ns = fuzz_between(f, 10 * US, 500 * US),
				    .looked_ns = BEGIN,
				    .had_ns = BEGIN,
				    .look_ns = BEGIN + fuzz_between(f, 0, LOOK_NS)};
	}
	/* Together they have the whole GPU. */
	for (uint32_t i = 0; i < count; i++) {
		world.slice[i].weight = i + 1 < count ? (uint32_t)fuzz_between(f, 60 / count, 90 / count)
						      : 100 - world.all_weights;
		world.all_weights += world.slice[i].weight;
	}
	introduce(&world);
	return &world;
}

/* Nobody starves, nobody stands in another's way, and time is shared out by weight. */
static void all_follow_round(struct fuzz *f)
{
	struct world *w = begin(f, 2 + fuzz_below(f, 5));
	uint64_t all = 0;

	run(w, 5 * SECOND);
	for (uint32_t i = 0; i < w->count; i++)
		all += w->slice[i].used_ns;
	CHECK(all >= 5 * SECOND / 100 * 85 && all <= 5 * SECOND + 10 * MS);
	for (uint32_t i = 0; i < w->count; i++) {
		uint64_t part = w->slice[i].used_ns * 100 / all,
			 due = w->slice[i].weight * 100ull / w->all_weights;

		CHECK(part + 5 >= due && part <= due + 5);
		/* A frame, or that of many who have the least each; and grace for each. */
		CHECK(w->slice[i].dry_ns <= VGPU_TURN_FRAME_NS + w->count * (VGPU_TURN_LEAST_NS + 2 * MS));
	}
}

static void turns_go_round_by_weight(void)
{
	fuzz_rounds(30, all_follow_round);
}

/* One of them stops, or lies: the others lose what it would have had, a twentieth, and a moment. */
static void one_does_not_round(struct fuzz *f)
{
	struct world *w = begin(f, 2);
	struct slice *good = &w->slice[0], *bad = &w->slice[1];
	uint64_t before, least;

	w->all_weights = 100;
	good->weight = 20 + fuzz_below(f, 61);
	bad->weight = 100 - good->weight;
	introduce(w);
	run(w, 100 * MS + fuzz_below(f, 50) * MS);
	bad->manner = STOPPED + fuzz_below(f, 4);
	good->dry_ns = 0;
	before = good->used_ns;
	run(w, 3 * SECOND);
	least = bad->manner == STOPPED ? 95 : good->weight > 15 ? good->weight - 15 : 0;
	if (good->used_ns - before < 3 * SECOND / 100 * least)
		fprintf(stderr, "manner %d weight %u: %llu ms of 3000\n", bad->manner, good->weight,
			(unsigned long long)((good->used_ns - before) / MS));
	CHECK(good->used_ns - before >= 3 * SECOND / 100 * least);
	CHECK(good->dry_ns <=
	      VGPU_PATIENCE_NS * 100ull / (good->weight > 5 ? good->weight - 5 : 1) + 20 * MS);
	if (bad->manner == STOPPED)
		CHECK(good->dry_ns <= VGPU_TURN_FRAME_NS + BELIEVED_NS + 2 * MS);
}

static void who_breaks_the_rules_costs_its_share(void)
{
	fuzz_rounds(60, one_does_not_round);
}

/* All others lie, and together: they cost what they would have had together, a twentieth, and a moment, as
 * one does. Their weights are those of slices without a cap, or their own and too much in all. */
static void all_but_one_lie_round(struct fuzz *f)
{
	struct world *w = begin(f, 3 + fuzz_below(f, SLICES - 2));
	uint32_t liars = w->count - 1, had;
	enum manner manner = HOLDS_IN_TURN + fuzz_below(f, 2);
	bool one_user = fuzz_below(f, 2) != 0;

	w->slice[0].weight = w->all_weights = 20 + fuzz_below(f, 61);
	for (uint32_t i = 1; i <= liars; i++) {
		w->slice[i].manner = manner;
		w->slice[i].weight = one_user ? vgpu_turn_weight_without_cap(w->slice[0].weight, liars) : 10;
		w->all_weights += w->slice[i].weight;
	}
	introduce(w);
	for (uint32_t i = 0; one_user && i < liars; i++)
		w->slice[0].party[i].uid = 77;
	run(w, 6 * SECOND);
	had = (uint32_t)(w->slice[0].used_ns * 100 / (6 * SECOND));
	if (had + 8 <
	    100 - 100 * (w->all_weights - w->slice[0].weight) / (w->all_weights < 100 ? 100 : w->all_weights))
		fprintf(stderr, "%u liars in manner %d, %u of %u: %u%%\n", liars, manner, w->slice[0].weight,
			w->all_weights, had);
	CHECK(had + 8 >= 100 - 100 * (w->all_weights - w->slice[0].weight) /
					 (w->all_weights < 100 ? 100 : w->all_weights));
}

static void any_number_of_liars_cost_no_more_than_their_shares(void)
{
	fuzz_rounds(60, all_but_one_lie_round);
}

static void slices_of_a_user_share_their_patience(void)
{
	struct vgpu_turn_party party[3] = {{.uid = 1, .weight = 10, .patience.lost = true},
					   {.uid = 2, .weight = 10, .patience.lost = true},
					   {.uid = 1, .weight = 20, .patience = VGPU_FRESH_PATIENCE}};
	struct vgpu_turn_patience with_all = {.lost = true};

	vgpu_turn_be_patient(&with_all, party, 3, 60, 100, 40 * MS, false);
	CHECK_IS(party[0].patience.left_ns, 14 * MS);
	CHECK_IS(party[1].patience.left_ns, 6 * MS);
	CHECK_IS(party[2].patience.left_ns, 14 * MS);
	CHECK_IS(with_all.left_ns, 18 * MS);
	CHECK(!with_all.lost && !party[0].patience.lost && party[1].patience.lost && !party[2].patience.lost);
	/* Who holds is waited for, and so are all of his, and all together. */
	party[2].held = true;
	vgpu_turn_be_patient(&with_all, party, 3, 60, 100, 20 * MS, true);
	CHECK_IS(party[0].patience.left_ns, 1 * MS);
	CHECK_IS(party[2].patience.left_ns, 1 * MS);
	CHECK_IS(party[1].patience.left_ns, 9 * MS);
	CHECK_IS(with_all.left_ns, 7 * MS);
	CHECK(!with_all.lost && !party[2].patience.lost);
	vgpu_turn_be_patient(&with_all, party, 3, 60, 100, 20 * MS, true);
	CHECK(with_all.lost && party[0].patience.lost && party[2].patience.lost && !party[1].patience.lost);
}

static void who_has_no_cap_has_a_part_of_what_is_left(void)
{
	CHECK_IS(vgpu_turn_weight_without_cap(40, 1), 60);
	CHECK_IS(vgpu_turn_weight_without_cap(40, 9), 6);
	CHECK_IS(vgpu_turn_weight_without_cap(97, 4), 0);
	CHECK_IS(vgpu_turn_weight_without_cap(120, 2), 0);
	CHECK_IS(vgpu_turn_weight_without_cap(40, 0), 0);
}

/* All begin to want at the same nanosecond: soon one has a turn, and goes on having it. */
static void at_once_round(struct fuzz *f)
{
	struct world *w = begin(f, 6);
	uint64_t used = 0;

	for (uint32_t i = 0; i < w->count; i++)
		w->slice[i].look_ns = BEGIN;
	run(w, 5 * MS);
	for (uint32_t i = 0; i < w->count; i++)
		used += w->slice[i].used_ns;
	CHECK(used >= 2 * MS);
}

static void who_begin_at_once_do_not_block_each_other(void)
{
	fuzz_rounds(30, at_once_round);
}

int main(void)
{
	CASE(turns_go_round_by_weight);
	CASE(who_breaks_the_rules_costs_its_share);
	CASE(any_number_of_liars_cost_no_more_than_their_shares);
	CASE(slices_of_a_user_share_their_patience);
	CASE(who_has_no_cap_has_a_part_of_what_is_left);
	CASE(who_begin_at_once_do_not_block_each_other);
	return summary();
}
