/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The thread that looks, some thousand times a second while there is something in flight, at what
 * the GPU has done, settles the share and keeps the slice's turn. It sleeps when there is nothing.
 *
 * What it lets go, a call of the driver may be waiting for in the program's thread, or in this one. So it is
 * awake before anything is held back in a stream (streams/semaphore.h), and before the driver is called with
 * it; nothing that it lets go needs the driver; and when a call of its own does not return, another thread
 * that never calls the driver does that in its stead (watchdog.h). */
#ifndef VGPU_GATE_POLLER_H
#define VGPU_GATE_POLLER_H

#include "process/process.h"

#include <stdbool.h>

/* Starts both threads. False when the system refuses one, to be tried again with the next launch: nothing may
 * be held back then, because nothing would let it go again. */
bool vgpu_poller_starts(struct vgpu_process *p);

#endif
