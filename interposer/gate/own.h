/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this room keeps for the process (process/process.h). */
#ifndef VGPU_GATE_OWN_H
#define VGPU_GATE_OWN_H

#include "admission/admission.h"
#include "process/process.h"

#define VGPU_BATCHES 32

/* Launches that are let go together. */
struct vgpu_batch {
	uint64_t ns; /* what is expected of the stream that has most of them */
	uint64_t all_ns; /* and of all streams */
	uint64_t begun_ns;
	uint32_t launches;
};

/* What is held back on one device (gate/batch.h). Which those are says the load (admission/load.h). */
struct vgpu_batches {
	uint32_t mutex;
	uint32_t releasing; /* a thread lets batches go */
	uint64_t held_ns, held_launches; /* in all of them */
	uint64_t opened_ns; /* when one was let go last */
	struct vgpu_waiting waiting; /* the oldest of them */
	struct vgpu_batch batch[VGPU_BATCHES]; /* by number, modulo VGPU_BATCHES */
};

/* The thread that looks after what is in flight (gate/poller.h). */
enum vgpu_poller { VGPU_POLLER_NONE = 0, VGPU_POLLER_STARTED, VGPU_POLLER_STARTING };

struct vgpu_gate {
	uint32_t mutex;
	uint32_t synchronised; /* the program has waited for results since the last launch */
	/* How the boards of its devices stood when it was decided whether launches may have to wait. */
	uint32_t boards;
	uint32_t sequence[VGPU_MAX_DEVICES];
	const struct vgpu_board *board[VGPU_MAX_DEVICES];

	uint32_t poller; /* enum vgpu_poller */
	uint32_t watchdog_started;
	uint32_t watchdog_bell; /* nobody rings it */
	uint32_t poller_mutex; /* for what the watchdog does in its stead */
	uint64_t poller_queries_ns; /* since when it is in calls of the driver; 0: it is not */

	struct vgpu_batches batches[VGPU_MAX_DEVICES];
};
_Static_assert(sizeof(struct vgpu_gate) <= VGPU_SEATS_AT - VGPU_GATE_AT, "it has room");

static inline struct vgpu_gate *vgpu_gate(const struct vgpu_process *p)
{
	return vgpu_own(p, VGPU_GATE_AT);
}

#endif
