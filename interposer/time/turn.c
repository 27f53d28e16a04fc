/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "time/turn.h"

/* Points beyond its share that another one is waited for. */
#define TOLERANCE 5u

/* Whether a comes before b. */
static bool before(bool a_spare, uint64_t a_since_ns, uint32_t a_id, bool b_spare, uint64_t b_since_ns,
		   uint32_t b_id)
{
	if (a_spare != b_spare)
		return b_spare;
	return a_since_ns != b_since_ns ? a_since_ns < b_since_ns : a_id < b_id;
}

/* Not before its work is done: the GPU goes over to the next one's as soon as there is some, and what is left
 * of this one's then waits for milliseconds. */
static enum vgpu_turn end_of(const struct vgpu_turn_self *self)
{
	return self->in_flight && self->remaining_ns != 0 ? VGPU_TURN_DRAIN : VGPU_TURN_LEAVE;
}

static bool is_over(const struct vgpu_turn_self *self, const struct vgpu_turn_other *other, uint32_t others,
		    uint64_t now_ns)
{
	for (uint32_t i = 0; i < others; i++) {
		bool comes = other[i].wants_since_ns != 0 || other[i].holds_since_ns != 0;

		/* Who says that it has begun as well, and does not give way, comes next: waiting for it is
		 * bounded. */
		if (!comes || (other[i].spare && !self->spare && !self->dry))
			continue;
		/* Who holds what is left over gives way at once. */
		if ((self->spare && !other[i].spare) || self->full || self->dry ||
		    now_ns >= self->holds_since_ns + self->quantum_ns)
			return true;
		/* There is nothing more to launch for a while. */
		if (!self->wants && !self->in_flight && self->idle_ns >= VGPU_TURN_IDLE_NS)
			return true;
	}
	return false;
}

enum vgpu_turn vgpu_turn_decide(const struct vgpu_turn_self *self, const struct vgpu_turn_other *other,
				uint32_t others, uint64_t now_ns)
{
	bool alone = true;

	for (uint32_t i = 0; i < others; i++)
		alone = alone && other[i].wants_since_ns == 0 && other[i].holds_since_ns == 0;
	if (alone)
		return VGPU_TURN_FREE;
	if (self->holds_since_ns != 0) {
		/* Two have begun at once: the later one gives way. */
		for (uint32_t i = 0; i < others; i++) {
			if (other[i].holds_since_ns != 0 &&
			    before(other[i].spare, other[i].holds_since_ns, other[i].id, self->spare,
				   self->holds_since_ns, self->id))
				return end_of(self);
		}
		if (!is_over(self, other, others, now_ns))
			return VGPU_TURN_KEEP;
		return end_of(self);
	}
	if (!self->wants)
		return VGPU_TURN_WAIT;
	for (uint32_t i = 0; i < others; i++) {
		if (other[i].holds_since_ns != 0)
			return VGPU_TURN_WAIT;
		if (other[i].wants_since_ns != 0 &&
		    before(other[i].spare, other[i].wants_since_ns, other[i].id, self->spare,
			   self->wants_since_ns, self->id) &&
		    (now_ns < self->wants_since_ns + VGPU_TURN_GRACE_NS ||
		     now_ns < self->held_ns + VGPU_TURN_GRACE_NS))
			return VGPU_TURN_WAIT;
	}
	return VGPU_TURN_TAKE;
}

uint64_t vgpu_turn_interactive_frame(uint32_t weight, uint32_t all_weights, uint64_t burst_ns)
{
	uint64_t frame;

	if (weight == 0 || burst_ns > VGPU_TURN_INTERACTIVE_MOST_NS)
		return VGPU_TURN_INTERACTIVE_MOST_NS;
	/* What did not fit would wait for one more turn. */
	frame = burst_ns * 9 / 8 * all_weights / weight;
	if (frame < VGPU_TURN_INTERACTIVE_FRAME_NS)
		return VGPU_TURN_INTERACTIVE_FRAME_NS;
	return frame < VGPU_TURN_INTERACTIVE_MOST_NS ? frame : VGPU_TURN_INTERACTIVE_MOST_NS;
}

uint64_t vgpu_turn_quantum(uint32_t weight, uint32_t all_weights, uint64_t frame_ns)
{
	uint64_t quantum = all_weights == 0 ? frame_ns : frame_ns * weight / all_weights;

	return quantum < VGPU_TURN_LEAST_NS ? VGPU_TURN_LEAST_NS : quantum;
}

uint32_t vgpu_turn_weight_without_cap(uint32_t capped, uint32_t uncapped)
{
	return capped < 100 && uncapped != 0 ? (100 - capped) / uncapped : 0;
}

static struct vgpu_turn_patience patience_after(struct vgpu_turn_patience was, uint32_t weight,
						uint32_t all_weights, uint64_t passed_ns, bool waited)
{
	uint32_t whole = all_weights < 100 ? 100 : all_weights;
	uint64_t earned;
	int64_t left;

	if (passed_ns > VGPU_PATIENCE_NS)
		passed_ns = VGPU_PATIENCE_NS;
	earned = passed_ns * weight / whole + passed_ns * TOLERANCE / 100;
	left = was.left_ns + (int64_t)(earned < passed_ns ? earned : passed_ns) -
	       (waited ? (int64_t)passed_ns : 0);
	left = left > VGPU_PATIENCE_NS ? VGPU_PATIENCE_NS : left;
	left = left < -(int64_t)VGPU_TURN_FRAME_NS ? -(int64_t)VGPU_TURN_FRAME_NS : left;
	return (struct vgpu_turn_patience){.left_ns = left,
					   .lost = left <= 0 || (was.lost && left < VGPU_PATIENCE_BACK_NS)};
}

/* The first party of the same user, which keeps the patience with all of his. */
static uint32_t first_of_user(const struct vgpu_turn_party *party, uint32_t i)
{
	uint32_t first = 0;

	while (party[first].uid != party[i].uid)
		first++;
	return first;
}

void vgpu_turn_be_patient(struct vgpu_turn_patience *with_all, struct vgpu_turn_party *party,
			  uint32_t parties, uint32_t weight, uint32_t all_weights, uint64_t passed_ns,
			  bool waited)
{
	for (uint32_t i = 0; i < parties; i++) {
		uint32_t users = 0, first = first_of_user(party, i);
		bool held = false;

		for (uint32_t k = i; k < parties && first == i; k++) {
			users += party[k].uid == party[i].uid ? party[k].weight : 0;
			held = held || (party[k].uid == party[i].uid && party[k].held);
		}
		party[i].patience = first != i ? party[first].patience
					       : patience_after(party[i].patience, users, all_weights,
								passed_ns, waited && held);
	}
	/* Also where nobody holds a turn and somebody only says that he is next. */
	*with_all = patience_after(*with_all, all_weights - weight, all_weights, passed_ns, waited);
}
