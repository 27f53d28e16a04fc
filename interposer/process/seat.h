/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The other slices of one GPU, and this one's turn (admission/turns.h). Only the poller changes it. */
#ifndef VGPU_PROCESS_SEAT_H
#define VGPU_PROCESS_SEAT_H

#include "api/layout.h"
#include "time/turn.h"

#include <stdbool.h>

#define VGPU_NEIGHBOURS 16
struct vgpu_neighbour {
	uint32_t job_id;
	uint32_t device;
	const struct vgpu_claims *mapped; /* never looked into: its owner may cut it */
	uint64_t sought_ns;		  /* when its claims were last looked for */
	struct vgpu_claim claim; /* what it said last */
};

struct vgpu_seat {
	uint32_t tried;
	uint32_t sequence; /* of the board when it was read */
	uint64_t looked_ns;
	uint64_t idle_since_ns;
	uint32_t drains; /* of the engine, and what had been used, when it was last judged */
	uint64_t used_ns;
	uint32_t rests; /* turns that were left with nothing more to do, since then */
	uint64_t frame_ns; /* in which all slices have a turn */
	uint64_t taken_ns; /* when the last turn was taken */
	uint64_t held_ns; /* when another one was last seen to hold its turn */
	uint64_t may_until_ns; /* launches that would end later wait; UINT64_MAX: no turns are taken, 0: it is
				  another's */
	uint64_t quantum_ns; /* how long this turn is */
	uint32_t full; /* something waits that does not fit into what is left of it */
	uint32_t all_weights;
	uint32_t weight;
	uint32_t count;
	bool turns; /* some slice has a share to keep, so that turns are taken */
	bool shared; /* other slices lie on the GPU, and may want turns */
	bool waited; /* for somebody else's turn, since the last look */
	bool spare;
	const struct vgpu_board *board;
	struct vgpu_claim *mine;
	uint64_t mine_inode;
	uint64_t mine_seen_ns; /* when it was last looked whether others can read them */
	bool mine_seen;
	struct vgpu_turn_patience patience; /* with all of them together */
	struct vgpu_neighbour neighbour[VGPU_NEIGHBOURS];
	struct vgpu_turn_party party[VGPU_NEIGHBOURS]; /* and with each */
};

#endif
