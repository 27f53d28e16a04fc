/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "admission/turns.h"

#include "admission/credit.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "process/claims.h"
#include "time/share.h"
#include "time/turn.h"

/* A claim is believed for so long after it was last renewed. */
#define BELIEVED_NS 3000000u
/* And none that reaches further ahead. */
#define AHEAD_NS (2 * BELIEVED_NS)
#define LOOK_NS 250000u
#define NEAR_NS 60000u
/* The GPU has nothing to do from the end of a turn until it is seen. */
#define END_NS 25000u
/* Of a slice's own busy time, before it is said again whether it is interactive. */
#define JUDGED_NS 40000000u
/* Somebody else's work may end so much later than this slice's turn begins. */
#define LATE_NS 300000u
/* What was earned while others had their turns is kept for so long. */
#define EARNED_NS 200000000u

/* Whether other slices lie on the device and some slice there has a share to keep. */
static bool is_shared(struct vgpu_seat *seat, uint32_t device)
{
	if (seat->board == NULL || seat->mine == NULL)
		return false;
	vgpu_claims_follow(seat, device);
	return seat->count != 0 && seat->turns;
}

/* Time that others leave over is taken only where all of them can be asked. Beside slices of a release with
 * other claims each keeps to its share. */
static bool is_elastic(const struct vgpu_seat *seat)
{
	return vgpu_turns_elastic() && !GET(seat->strangers) &&
	       !GET(seat->foreign_board);
}

bool vgpu_turns_spare(struct vgpu_process *p, uint32_t device)
{
	const struct vgpu_turns *turns = &vgpu_load(p, device)->turns;

	return is_elastic(vgpu_seat(p, device)) &&
	       (GET(turns->may_until_ns) == UINT64_MAX || GET(turns->spare));
}

bool vgpu_turns_siblings_busy(struct vgpu_process *p, uint32_t device, uint64_t now_ns)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t high = GET(ledger->slots_high);

	for (uint32_t i = 0; i < high && i < VGPU_MAX_PROCS; i++) {
		if (i != GET(p->slot) && GET(ledger->slot[i].state) == 1 &&
		    GET(ledger->slot[i].inflight_until_ns[device]) > now_ns)
			return true;
	}
	return false;
}

static bool is_believed(const struct vgpu_seat *seat, uint32_t i, uint64_t now_ns)
{
	const struct vgpu_claim *claim = &seat->neighbour[i].claim;

	return claim->until_ns > now_ns && claim->until_ns < now_ns + AHEAD_NS &&
	       !seat->party[i].patience.lost && !seat->patience.lost;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* What the weights are parts of. Where shares leave something over, turns are no longer for that: a slice
 * that is at work for half the time all the same would be so for more of some seconds. */
static uint32_t whole(const struct vgpu_seat *seat)
{
	return seat->all_weights < 100 ? 100 : seat->all_weights;
}

/* The frame that a slice asks for, 0 when any will do. */
static uint64_t interactive_frame(const struct vgpu_seat *seat, uint32_t weight, uint32_t interactive_us)
{
	return interactive_us == 0
		       ? 0
		       : vgpu_turn_interactive_frame(weight, whole(seat), interactive_us * 1000ull);
}

/* Reads what all others say, as far as it is believed. */
static uint32_t listen(struct vgpu_process *p, uint32_t device, struct vgpu_turn_other other[VGPU_NEIGHBOURS],
		       uint64_t now_ns)
{
	struct vgpu_seat *seat = vgpu_seat(p, device);
	struct vgpu_turns *turns = &vgpu_load(p, device)->turns;
	uint64_t passed = now_ns - turns->looked_ns, drained = 0;
	uint32_t others = 0;
	uint64_t frame_ns = interactive_frame(seat, seat->weight, GET(seat->mine->interactive_us));

	if (turns->looked_ns != 0)
		vgpu_turn_be_patient(&seat->patience, seat->party, seat->count, seat->weight,
				     seat->all_weights, passed, turns->waited);
	for (uint32_t i = 0; i < seat->count; i++) {
		struct vgpu_neighbour *neighbour = &seat->neighbour[i];

		vgpu_claims_read(neighbour, seat->party[i].uid, now_ns);
		if (neighbour->claim.drained_ns > drained &&
		    neighbour->claim.drained_ns < now_ns + BELIEVED_NS)
			drained = neighbour->claim.drained_ns;
		if (!is_believed(seat, i, now_ns)) {
			seat->party[i].held = false;
			neighbour->claim.holds_since_ns = neighbour->claim.wants_since_ns = 0;
			continue;
		}
		frame_ns = later(frame_ns, interactive_frame(seat, seat->party[i].weight,
							     neighbour->claim.interactive_us));
		seat->party[i].held = neighbour->claim.holds_since_ns != 0;
		turns->held_ns = seat->party[i].held ? now_ns : turns->held_ns;
		other[others++] = (struct vgpu_turn_other){.wants_since_ns = neighbour->claim.wants_since_ns,
							   .holds_since_ns = neighbour->claim.holds_since_ns,
							   .spare = neighbour->claim.spare != 0,
							   .id = neighbour->job_id};
	}
	turns->looked_ns = now_ns;
	turns->frame_ns = frame_ns != 0 ? frame_ns : VGPU_TURN_FRAME_NS;
	/* Whatever they say: what this slice does in its turn is counted. */
	SET(vgpu_load(p, device)->others_until_ns,
	    drained < turns->taken_ns + LATE_NS ? drained : turns->taken_ns + LATE_NS);
	return others;
}

/* What the slice does at once when it does so much so often, in microseconds; 0: that is not interactive. */
static uint32_t interactive_us(uint64_t used_ns, uint32_t times, uint64_t most_ns)
{
	return times != 0 && used_ns / times <= most_ns ? (uint32_t)(used_ns / times / 1000) + 1 : 0;
}

/* Whether this slice waits for its results, or for something to do, again and again, over some turns. */
static void judge_turns(struct vgpu_process *p, uint32_t device)
{
	struct vgpu_seat *seat = vgpu_seat(p, device);
	struct vgpu_turns *turns = &vgpu_load(p, device)->turns;
	uint32_t drains = GET(vgpu_load(p, device)->drains) - turns->drains;
	uint64_t used_ns = GET(vgpu_pages.ledger->busy_ns[device]) - turns->used_ns;
	uint32_t before_us = GET(seat->mine->interactive_us), us;

	if (used_ns < JUDGED_NS)
		return;
	us = interactive_us(used_ns, drains, VGPU_TURN_INTERACTIVE_NS);
	us = us != 0 ? us : interactive_us(used_ns, turns->rests, VGPU_TURN_RESTS_NS);
	/* One time more or less may fall into what is judged: that makes no difference of turns. */
	SET(seat->mine->interactive_us, us != 0 && before_us != 0 ? (3 * before_us + us) / 4 : us);
	turns->drains += drains;
	turns->used_ns += used_ns;
	turns->rests = 0;
}

static void leave_turn(struct vgpu_seat *seat, uint64_t drained_ns)
{
	SET(seat->mine->drained_ns, drained_ns);
	SET(seat->mine->wants_since_ns, 0);
	__atomic_store_n(&seat->mine->holds_since_ns, 0, __ATOMIC_RELEASE);
	__atomic_fetch_add(&seat->mine->bell, 1, __ATOMIC_RELEASE);
	vgpu_futex_wake(&seat->mine->bell, INT32_MAX, 0);
}

static void set_may(struct vgpu_load *load, uint64_t until_ns)
{
	if (GET(load->turns.may_until_ns) == until_ns)
		return;
	SET(load->turns.may_until_ns, until_ns);
	if (until_ns != UINT64_MAX)
		SET(load->ample, 0);
	SET(load->batch_try_ns, 0);
	vgpu_load_ring(load);
}

/* What takes longer than expected may do so for a while yet. */
static uint64_t remaining(struct vgpu_load *load, uint64_t now_ns)
{
	uint64_t ns = vgpu_load_remaining(load, now_ns);

	return ns == 0 && GET(load->in_flight) != 0 ? NEAR_NS * 2 : ns;
}

/* How soon to look for the end of what is in flight: closely when it is near, and less so the later it is. */
static uint64_t until_end(const struct vgpu_load *load, uint64_t now_ns)
{
	uint64_t end_ns = GET(load->progress_ns) + GET(load->expected_ns);
	uint64_t ns = end_ns > now_ns + NEAR_NS ? end_ns - now_ns - NEAR_NS
		      : now_ns > end_ns		? (now_ns - end_ns) / 8
						: 0;

	return ns < END_NS ? END_NS : ns > LOOK_NS ? LOOK_NS : ns;
}

static struct vgpu_turn_self myself(struct vgpu_process *p, uint32_t device, uint64_t now_ns)
{
	struct vgpu_load *load = vgpu_load(p, device);
	struct vgpu_seat *seat = vgpu_seat(p, device);
	struct vgpu_turns *turns = &load->turns;
	uint64_t quantum = vgpu_turn_quantum(seat->weight, whole(seat), turns->frame_ns);
	bool busy = GET(load->in_flight) != 0, siblings = vgpu_turns_siblings_busy(p, device, now_ns);
	int64_t have = vgpu_time_credit(p, device, now_ns);
	/* To begin a turn there must be enough to fill it; more comes while it lasts. */
	int64_t enough = GET(seat->mine->holds_since_ns) != 0
				 ? 0
				 : (int64_t)(quantum * (100 - seat->weight) / 100 * 9 / 10);
	bool waiting = vgpu_load_waits(load);

	/* More than is kept there never will be. */
	if (enough > (int64_t)later(GET(load->burst_ns), VGPU_SHARE_BURST_NS) * 9 / 10)
		enough = (int64_t)later(GET(load->burst_ns), VGPU_SHARE_BURST_NS) * 9 / 10;
	if (busy || waiting || siblings || turns->idle_since_ns == 0)
		turns->idle_since_ns = now_ns;
	SET(turns->spare, is_elastic(seat) && have < enough);
	return (struct vgpu_turn_self){.wants_since_ns = GET(seat->mine->wants_since_ns),
				       .holds_since_ns = GET(seat->mine->holds_since_ns),
				       .held_ns = turns->held_ns,
				       .quantum_ns = quantum,
				       .idle_ns = now_ns - turns->idle_since_ns,
				       .remaining_ns = remaining(load, now_ns),
				       .id = vgpu_pages.limits->job_id,
				       .spare = GET(turns->spare),
				       .in_flight = busy || siblings,
				       .wants = waiting && (have >= enough || GET(turns->spare)),
				       .full = GET(turns->full) != 0,
				       .dry = waiting && !busy && !siblings && have < 0 &&
					      !GET(turns->spare)};
}

/* What was earned while others had their turns is there to be used, and so is what the next turn needs beyond
 * what comes while it lasts. */
static void begin(struct vgpu_process *p, uint32_t device, const struct vgpu_turn_self *self, uint64_t now_ns)
{
	struct vgpu_load *load = vgpu_load(p, device);
	struct vgpu_seat *seat = vgpu_seat(p, device);
	struct vgpu_turns *turns = &load->turns;
	uint64_t waited = self->wants_since_ns != 0 && self->wants_since_ns < now_ns
				  ? now_ns - self->wants_since_ns
				  : 0;
	uint64_t burst = later(waited * seat->weight, self->quantum_ns * (100 - seat->weight)) / 100 +
			 VGPU_SHARE_BURST_NS;

	SET(load->burst_ns, burst < VGPU_SHARE_WAITED_NS ? burst : VGPU_SHARE_WAITED_NS);
	SET(turns->taken_ns, now_ns);
	SET(turns->full, 0);
	SET(turns->quantum_ns, self->quantum_ns);
	SET(seat->mine->holds_since_ns, now_ns);
	SET(seat->mine->wants_since_ns, 0);
}

/* Whom to wait for. */
static void wait_at(struct vgpu_seat *seat, uint32_t **bell, uint32_t *rung)
{
	for (uint32_t i = 0; i < seat->count; i++) {
		if (seat->neighbour[i].claim.holds_since_ns == 0)
			continue;
		*bell = vgpu_claims_bell(&seat->neighbour[i]);
		*rung = seat->neighbour[i].claim.bell;
		return;
	}
}

/* Does what was decided. Returns how long until the next look. */
static uint64_t follow(struct vgpu_process *p, uint32_t device, const struct vgpu_turn_self *self,
		       enum vgpu_turn turn, uint64_t now_ns)
{
	struct vgpu_load *load = vgpu_load(p, device);
	struct vgpu_seat *seat = vgpu_seat(p, device);
	struct vgpu_turns *turns = &load->turns;

	switch (turn) {
	case VGPU_TURN_FREE:
		if (self->holds_since_ns == 0)
			begin(p, device, self, now_ns);
		else if (now_ns - turns->taken_ns > EARNED_NS)
			SET(load->burst_ns, VGPU_SHARE_BURST_NS);
		set_may(load, UINT64_MAX);
		return LOOK_NS;
	case VGPU_TURN_TAKE:
		begin(p, device, self, now_ns);
		set_may(load, now_ns + self->quantum_ns);
		return LOOK_NS;
	case VGPU_TURN_KEEP:
		/* A turn begins when somebody else wants one. */
		set_may(load, self->holds_since_ns + self->quantum_ns);
		return self->remaining_ns > LOOK_NS ? LOOK_NS : NEAR_NS * 2;
	case VGPU_TURN_DRAIN:
		set_may(load, 0);
		return until_end(load, now_ns);
	case VGPU_TURN_LEAVE:
		set_may(load, 0);
		judge_turns(p, device);
		leave_turn(seat, now_ns + self->remaining_ns);
		return NEAR_NS;
	case VGPU_TURN_WAIT:
		set_may(load, 0);
		turns->waited = self->wants;
		return LOOK_NS;
	}
	return LOOK_NS;
}

/* There was nothing to do for a while: no turn is held or wanted. */
static void rest(struct vgpu_process *p, uint32_t device, const struct vgpu_turn_self *self, uint32_t others,
		 uint64_t now_ns)
{
	struct vgpu_seat *seat = vgpu_seat(p, device);
	struct vgpu_turns *turns = &vgpu_load(p, device)->turns;

	if (self->holds_since_ns != 0) {
		turns->rests++;
		judge_turns(p, device);
		leave_turn(seat, now_ns);
	}
	SET(seat->mine->wants_since_ns, 0);
	set_may(vgpu_load(p, device), others == 0 ? UINT64_MAX : 0);
}

uint64_t vgpu_turns_look(struct vgpu_process *p, uint32_t device, uint64_t now_ns, uint32_t **bell,
			 uint32_t *rung)
{
	struct vgpu_load *load = vgpu_load(p, device);
	struct vgpu_seat *seat = vgpu_seat(p, device);
	struct vgpu_turns *turns = &load->turns;
	struct vgpu_turn_other other[VGPU_NEIGHBOURS];
	struct vgpu_turn_self self;
	enum vgpu_turn turn;
	uint32_t others;

	if (vgpu_claims_board_changed(seat, device, now_ns))
		SET(p->gate_generation, 0);
	SET(turns->shared, is_shared(seat, device));
	SET(turns->neighbours, seat->count);
	if (!turns->shared) {
		set_may(load, UINT64_MAX);
		turns->looked_ns = 0;
		return 0;
	}
	if (!vgpu_claims_are_seen(seat, now_ns)) {
		set_may(load, 0);
		return LOOK_NS;
	}
	/* What was used before this process came, or while nobody else was there, says nothing of its
	 * turns. */
	if (turns->looked_ns == 0)
		turns->used_ns = GET(vgpu_pages.ledger->busy_ns[device]);
	others = listen(p, device, other, now_ns);
	self = myself(p, device, now_ns);
	turns->waited = false;
	/* How long it really took to drain, as soon as that is known: the next one is not charged for it. */
	if (self.holds_since_ns == 0 && !self.in_flight &&
	    GET(seat->mine->drained_ns) > GET(load->progress_ns))
		SET(seat->mine->drained_ns, GET(load->progress_ns));
	if (!self.in_flight && !vgpu_load_waits(load) && self.idle_ns >= VGPU_TURN_IDLE_NS) {
		rest(p, device, &self, others, now_ns);
		return 0;
	}
	SET(seat->mine->until_ns, now_ns + BELIEVED_NS);
	SET(seat->mine->spare, self.spare);
	if (self.wants && self.wants_since_ns == 0 && self.holds_since_ns == 0) {
		SET(seat->mine->wants_since_ns, now_ns);
		self.wants_since_ns = now_ns;
	}
	turn = vgpu_turn_decide(&self, other, others, now_ns);
	if (turn == VGPU_TURN_WAIT)
		wait_at(seat, bell, rung);
	return follow(p, device, &self, turn, now_ns);
}
