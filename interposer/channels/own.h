/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this room keeps for the process (process/process.h). */
#ifndef VGPU_CHANNELS_OWN_H
#define VGPU_CHANNELS_OWN_H

#include "channels/handles.h"
#include "process/process.h"
#include "tuning.h"

struct vgpu_channels {
	/* The thread that reads events, by an address of its own; a second thread leaves the events to it. */
	uintptr_t reader;
	uint32_t begun; /* the process has a place on the page */
	uint32_t dirty; /* the page does not say what is known */
	uint32_t lost;	/* events that found no room */
	uint32_t unseen; /* 1: groups may be made that nobody sees */
	uint32_t reaching; /* the lock of who changes the driver's places */
	uint64_t put, taken; /* how many events were, ever */
	struct {
		uint64_t turn; /* twice how often the place was used; one more while an event is there */
		struct vgpu_handle_event event;
	} place[VGPU_HANDLE_EVENTS];

	/* Of who reads. */
	uint32_t slot;	   /* 1 + the place where the page was last written; 0: never */
	uint32_t sequence; /* and how it stands there */
	struct vgpu_handles handles;
};
_Static_assert(sizeof(struct vgpu_channels) <= VGPU_OWN_BYTES - VGPU_CHANNELS_AT, "it has room");

static inline struct vgpu_channels *vgpu_channels(const struct vgpu_process *p)
{
	return vgpu_own(p, VGPU_CHANNELS_AT);
}

#endif
