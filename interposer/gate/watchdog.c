/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate/watchdog.h"

#include "base/atomics.h"
#include "base/futex.h"
#include "base/thread.h"
#include "gate/own.h"
#include "gate/release.h"
#include "streams/own.h"

#include <sys/prctl.h>

/* How often it looks after the poller, and what is let go while that is away. */
#define LOOK_NS 10000000
#define AWAY_LOOK_NS 1000000
/* Whoever has no core for a while is not away. */
#define AWAY_NS 5000000u

static bool is_away(struct vgpu_process *p)
{
	uint64_t since = GET(vgpu_gate(p)->poller_queries_ns), now = vgpu_now_ns();

	return since != 0 && now > since && now - since > AWAY_NS;
}

static void *watch(void *process)
{
	struct vgpu_process *p = process;
	bool away = false;

	prctl(PR_SET_NAME, "vgpu-watchdog", 0, 0, 0);
	for (;;) {
		vgpu_futex_wait(&vgpu_streams(p)->poller_sleeps, 1, FUTEX_PRIVATE_FLAG, -1);
		vgpu_futex_wait(&vgpu_gate(p)->watchdog_bell, 0, FUTEX_PRIVATE_FLAG,
				away ? AWAY_LOOK_NS : LOOK_NS);
		away = is_away(p);
		for (uint32_t d = 0; away && d < VGPU_MAX_DEVICES && d < GET(vgpu_pages.limits->device_count);
		     d++) {
			struct vgpu_elsewhere nobody_sleeps;
			uint64_t batch_ns;

			vgpu_release_device(p, d, true, &nobody_sleeps, &batch_ns);
		}
	}
	return NULL;
}

bool vgpu_watchdog_starts(struct vgpu_process *p)
{
	return vgpu_thread_start(watch, p);
}
