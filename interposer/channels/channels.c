/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "channels/channels.h"

#include "base/atomics.h"
#include "base/sys.h"
#include "channels/own.h"
#include "channels/page.h"
#include "tuning.h"

#include <time.h>

/* Its address tells one thread from another. */
static __thread char this_thread;

/* False when there is no room: a thread that reads does not get on. */
static bool put_event(struct vgpu_channels *channels, const struct vgpu_handle_event *event)
{
	uint64_t at = GET(channels->put), round, turn;

	for (;;) {
		round = at / VGPU_HANDLE_EVENTS * 2;
		turn = __atomic_load_n(&channels->place[at % VGPU_HANDLE_EVENTS].turn, __ATOMIC_ACQUIRE);
		if (turn < round)
			return false;
		if (turn > round)
			at = GET(channels->put); /* somebody else has taken the place */
		else if (__atomic_compare_exchange_n(&channels->put, &at, at + 1, 0, __ATOMIC_RELAXED,
						     __ATOMIC_RELAXED))
			break;
	}
	channels->place[at % VGPU_HANDLE_EVENTS].event = *event;
	__atomic_store_n(&channels->place[at % VGPU_HANDLE_EVENTS].turn, round + 1, __ATOMIC_SEQ_CST);
	return true;
}

static bool is_there(const struct vgpu_channels *channels, uint64_t at)
{
	return __atomic_load_n(&channels->place[at % VGPU_HANDLE_EVENTS].turn, __ATOMIC_SEQ_CST) ==
	       at / VGPU_HANDLE_EVENTS * 2 + 1;
}

/* By who reads. */
static void read_events(struct vgpu_process *p)
{
	struct vgpu_channels *channels = vgpu_channels(p);
	uint64_t at = GET(channels->taken);

	for (; is_there(channels, at); at++) {
		struct vgpu_handle_event event = channels->place[at % VGPU_HANDLE_EVENTS].event;

		__atomic_store_n(&channels->place[at % VGPU_HANDLE_EVENTS].turn,
				 at / VGPU_HANDLE_EVENTS * 2 + 2, __ATOMIC_RELEASE);
		SET(channels->taken, at + 1);
		if (vgpu_handles_note(&channels->handles, &event))
			SET(channels->dirty, 1);
	}
	if (__atomic_load_n(&channels->begun, __ATOMIC_ACQUIRE) &&
	    __atomic_exchange_n(&channels->dirty, 0, __ATOMIC_RELAXED) && !vgpu_channels_write(p))
		SET(channels->dirty, 1); /* with the next one */
}

/* If an event comes while a thread reads, that thread reads it: it looks again after it has cleared
 * reader. */
static void read_all(struct vgpu_process *p)
{
	struct vgpu_channels *channels = vgpu_channels(p);

	do {
		uintptr_t nobody = 0;

		if (!__atomic_compare_exchange_n(&channels->reader, &nobody, (uintptr_t)&this_thread, 0,
						 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return;
		read_events(p);
		__atomic_store_n(&channels->reader, 0, __ATOMIC_SEQ_CST);
	} while (is_there(channels, GET(channels->taken)));
}

/* Not by nanosleep, in which a thread can be cancelled. A signal handler does not wait for its own thread. */
static bool put_when_there_is_room(struct vgpu_channels *channels, const struct vgpu_handle_event *event)
{
	const struct timespec pause = {.tv_nsec = VGPU_HANDLE_ROOM_PAUSE_NS};

	for (int try = 0; try < VGPU_HANDLE_ROOM_TRIES && GET(channels->reader) != (uintptr_t)&this_thread;
	     try++) {
		syscall(SYS_nanosleep, &pause, NULL);
		if (put_event(channels, event))
			return true;
	}
	return false;
}

void vgpu_channels_note(struct vgpu_process *p, const struct vgpu_handle_event *event)
{
	struct vgpu_channels *channels = vgpu_channels(p);

	if (!put_event(channels, event) && !put_when_there_is_room(channels, event)) {
		ADD(channels->lost, 1);
		SET(channels->dirty, 1);
	}
	read_all(p);
}

void vgpu_channels_begin(struct vgpu_process *p)
{
	SET(vgpu_channels(p)->dirty, 1);
	__atomic_store_n(&vgpu_channels(p)->begun, 1, __ATOMIC_RELEASE);
	read_all(p);
}

void vgpu_channels_unseen(struct vgpu_process *p, bool unseen)
{
	struct vgpu_channels *channels = vgpu_channels(p);

	if (__atomic_exchange_n(&channels->unseen, unseen, __ATOMIC_RELAXED) == unseen)
		return;
	SET(channels->dirty, 1);
	read_all(p);
}
