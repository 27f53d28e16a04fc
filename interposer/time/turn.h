/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whose turn it is on a GPU that several slices use: a decision each of them makes for itself, from
 * what it knows of itself and what the others say. Nothing here touches memory or the clock.
 *
 * Without turns the driver lets two busy processes alternate, each then takes twice as long, and how
 * long the GPU was busy for whom cannot be told. A turn lasts its slice's part of VGPU_TURN_FRAME_NS.
 * Those who want one take it in the order in which they began to want it. */
#ifndef VGPU_TIME_TURN_H
#define VGPU_TIME_TURN_H

#include <stdbool.h>
#include <stdint.h>

/* Going from one process to another takes the GPU about 0.14 ms (H200), which is lost twice in it. Who
 * waits for its results all the time waits for its turn as often: then turns are shorter, and as long as
 * what such a slice does at once, within these. */
#define VGPU_TURN_FRAME_NS 60000000u
#define VGPU_TURN_INTERACTIVE_FRAME_NS 10000000u
#define VGPU_TURN_INTERACTIVE_MOST_NS 16000000u
/* To wait for them once in so much of its own busy time, or to have nothing more to do: requests that come
 * while the slice waits are done at once. */
#define VGPU_TURN_INTERACTIVE_NS 8000000u
#define VGPU_TURN_RESTS_NS 12000000u
#define VGPU_TURN_LEAST_NS 3000000u
/* Who is first in the order and does not take its turn for so long is passed over. */
#define VGPU_TURN_GRACE_NS 800000u
/* A holder that has nothing in flight for so long has lost its turn. */
#define VGPU_TURN_IDLE_NS 300000u

/* What another slice says, as far as it is believed. */
struct vgpu_turn_other {
	uint64_t wants_since_ns; /* 0: it does not */
	uint64_t holds_since_ns; /* 0: it does not */
	uint32_t id;
	bool spare; /* it has used up its share */
};

struct vgpu_turn_self {
	uint64_t wants_since_ns;
	uint64_t holds_since_ns;
	uint64_t held_ns; /* when another one was last seen to hold; 0 never */
	uint64_t quantum_ns;
	uint64_t idle_ns;      /* how long nothing has been in flight */
	uint64_t remaining_ns; /* of what is in flight */
	uint32_t id;
	bool spare;
	bool in_flight;
	bool wants; /* there is something to launch, and credit for it */
	bool full;  /* but it does not fit into this turn any more */
	bool dry;   /* its share is used up, and nothing is at work */
};

enum vgpu_turn {
	VGPU_TURN_FREE,	 /* nobody else is there */
	VGPU_TURN_TAKE,	 /* it is mine from now on */
	VGPU_TURN_KEEP,	 /* it is mine */
	VGPU_TURN_DRAIN, /* it is over: nothing more is launched until what is in flight is done */
	VGPU_TURN_LEAVE, /* it is over, and the next one may begin */
	VGPU_TURN_WAIT,	 /* it is somebody else's */
};

enum vgpu_turn vgpu_turn_decide(const struct vgpu_turn_self *self, const struct vgpu_turn_other *other,
				uint32_t others, uint64_t now_ns);

/* How long a turn is for whom has this weight of all. */
uint64_t vgpu_turn_quantum(uint32_t weight, uint32_t all_weights, uint64_t frame_ns);

/* The frame in which a slice with this weight can do so much at once in its turn. */
uint64_t vgpu_turn_interactive_frame(uint32_t weight, uint32_t all_weights, uint64_t burst_ns);

/* What a slice without a cap counts for, beside so many of its kind and slices whose caps add up to capped:
 * its part of what these leave over. Turns are for those that have a share to keep. */
uint32_t vgpu_turn_weight_without_cap(uint32_t capped, uint32_t uncapped);

/* For how long somebody is still waited for. It is lost when nothing is left of it, and comes back with
 * enough for a while: each change costs a hand-over. */
struct vgpu_turn_patience {
	int64_t left_ns;
	bool lost;
};
#define VGPU_PATIENCE_NS 60000000
#define VGPU_PATIENCE_BACK_NS 10000000
#define VGPU_FRESH_PATIENCE ((struct vgpu_turn_patience){.left_ns = VGPU_PATIENCE_NS})

/* Another slice, as root has placed it. */
struct vgpu_turn_party {
	uint32_t uid;
	uint32_t weight;
	bool held; /* it said that it was its turn, when it was last asked */
	struct vgpu_turn_patience patience;
};

/* A slice earns patience as the shares of others are, and a few points more, and spends it waiting, whatever
 * they say. There is one budget for all of them, and within it one for each user, which his slices share.
 * With whom it is lost is not believed; when it is lost with all, nobody is. */
void vgpu_turn_be_patient(struct vgpu_turn_patience *with_all, struct vgpu_turn_party *party,
			  uint32_t parties, uint32_t weight, uint32_t all_weights, uint64_t passed_ns,
			  bool waited);

#endif
