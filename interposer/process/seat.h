/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The other slices of one GPU, and what this one says to them (process/claims.h). Only the poller
 * changes it. */
#ifndef VGPU_PROCESS_SEAT_H
#define VGPU_PROCESS_SEAT_H

#include "process/process.h"
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
	uint32_t all_weights;
	uint32_t weight;
	uint32_t count;
	bool turns; /* some slice has a share to keep, so that turns are taken */
	bool strangers; /* others lie on the GPU whose claims are laid out otherwise: no turns with them */
	bool foreign_board; /* the board is: who lies there is not known */
	uint64_t board_inode; /* of the file that was last looked at; 0: there was none */
	uint64_t board_seen_ns;
	const struct vgpu_board *board;
	struct vgpu_claim *mine;
	uint64_t mine_inode;
	uint64_t mine_seen_ns; /* when it was last looked whether others can read them */
	bool mine_seen;
	struct vgpu_turn_patience patience; /* with all of them together */
	struct vgpu_neighbour neighbour[VGPU_NEIGHBOURS];
	struct vgpu_turn_party party[VGPU_NEIGHBOURS]; /* and with each */
};
_Static_assert(VGPU_MAX_DEVICES * sizeof(struct vgpu_seat) <= VGPU_MEMORY_AT - VGPU_SEATS_AT,
	       "they have room");

static inline struct vgpu_seat *vgpu_seat(const struct vgpu_process *p, uint32_t device)
{
	return (struct vgpu_seat *)vgpu_own(p, VGPU_SEATS_AT) + device;
}

#endif
