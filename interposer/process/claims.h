/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The board of a GPU and the claims of those who share it: finding, believing and reading them. */
#ifndef VGPU_PROCESS_CLAIMS_H
#define VGPU_PROCESS_CLAIMS_H

#include "process/seat.h"

#include <stdbool.h>

/* Finds the board of the device and this job's claims, once, before the poller starts. False when there
 * are none: then there are no turns. */
bool vgpu_claims_open(struct vgpu_seat *seat, uint32_t device);

/* Whether this job has claims that can be used for every slice that a board names: root has made them before
 * its first process began, so without them the slice would take no turns because somebody wants it so. */
bool vgpu_claims_ready(struct vgpu_process *p);

/* Whether several slices are on the board, one of which has a share that the library keeps. */
bool vgpu_claims_several(const struct vgpu_board *board);

/* Whether vgpud keeps the shares of a board's slices. */
static inline bool vgpu_claims_are_kept(const struct vgpu_board *board)
{
	return board != NULL &&
	       __atomic_load_n(&board->kept_by, __ATOMIC_RELAXED) == VGPU_KEPT_BY_VGPUD;
}

/* Whether the others can still read what this job claims, looked at now and then: its user may change the
 * file's mode or put another one in its place, and would then be overlooked. */
bool vgpu_claims_are_seen(struct vgpu_seat *seat, uint64_t now_ns);

/* Whether there is another file in the board's place, looked at now and then: from then on the seat is at
 * that. */
bool vgpu_claims_board_changed(struct vgpu_seat *seat, uint32_t device, uint64_t now_ns);

/* Follows changes of the board. */
void vgpu_claims_follow(struct vgpu_seat *seat, uint32_t device);

/* Reads what a neighbour, a job of this user, says now. Empty when it says nothing that can be read. */
void vgpu_claims_read(struct vgpu_neighbour *neighbour, uint32_t uid, uint64_t now_ns);

/* What somebody waits for who waits for the turn of one to end that has just said that it is its. */
uint32_t *vgpu_claims_bell(struct vgpu_neighbour *neighbour);

#endif
