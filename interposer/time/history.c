/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "time/history.h"

#include "base/atomics.h"

#include <stdbool.h>

/* Two processes may meet here: what they write of the same moment is nearly the same. */
void vgpu_history_note(struct vgpu_history *history, uint64_t from_ns, uint64_t idle_since_ns,
		       uint64_t busy_ns)
{
	struct vgpu_mark *mark = &history->mark[from_ns / VGPU_MARK_NS % VGPU_MARKS];

	if (GET(mark->from_ns) / VGPU_MARK_NS == from_ns / VGPU_MARK_NS)
		return;
	__atomic_store_n(&mark->from_ns, 0, __ATOMIC_RELEASE);
	SET(mark->idle_since_ns, idle_since_ns);
	SET(mark->busy_ns, busy_ns);
	__atomic_store_n(&mark->from_ns, from_ns, __ATOMIC_RELEASE);
}

/* False when there is none, or it changes just now. */
static bool read_mark(const struct vgpu_mark *mark, struct vgpu_mark *out)
{
	out->from_ns = __atomic_load_n(&mark->from_ns, __ATOMIC_ACQUIRE);
	out->idle_since_ns = __atomic_load_n(&mark->idle_since_ns, __ATOMIC_ACQUIRE);
	out->busy_ns = __atomic_load_n(&mark->busy_ns, __ATOMIC_ACQUIRE);
	return out->from_ns != 0 && out->from_ns == GET(mark->from_ns) && out->idle_since_ns <= out->from_ns;
}

/* The sum at a time between two marks. */
static uint64_t sum_at(const struct vgpu_mark *before, const struct vgpu_mark *after, uint64_t at_ns)
{
	uint64_t span, more;

	if (at_ns >= after->idle_since_ns || after->busy_ns <= before->busy_ns)
		return after->busy_ns;
	span = after->idle_since_ns - before->from_ns;
	more = after->busy_ns - before->busy_ns;
	return before->busy_ns + (uint64_t)((unsigned __int128)more * (at_ns - before->from_ns) / span);
}

uint32_t vgpu_history_used(const struct vgpu_history *history, uint64_t from_ns, uint64_t now_ns,
			   uint64_t until_ns, uint64_t busy_ns)
{
	struct vgpu_mark before = {0}, after = {.from_ns = now_ns,
						.idle_since_ns = until_ns < now_ns ? until_ns : now_ns,
						.busy_ns = busy_ns};
	uint64_t then_ns, used_ns;

	for (uint32_t i = 0; i < VGPU_MARKS; i++) {
		struct vgpu_mark mark;

		if (!read_mark(&history->mark[i], &mark) || mark.from_ns > now_ns)
			continue;
		if (mark.from_ns <= from_ns && mark.from_ns > before.from_ns)
			before = mark;
		else if (mark.from_ns > from_ns && mark.from_ns < after.from_ns)
			after = mark;
	}
	/* Nothing is remembered of the time before the first mark but since when it was idle. */
	if (before.from_ns == 0 && from_ns < after.idle_since_ns)
		from_ns = after.idle_since_ns;
	then_ns = before.from_ns == 0 ? after.busy_ns : sum_at(&before, &after, from_ns);
	used_ns = busy_ns > then_ns ? busy_ns - then_ns : 0;
	if (from_ns >= now_ns || used_ns >= now_ns - from_ns)
		return used_ns == 0 ? 0 : 1000;
	return (uint32_t)(used_ns * 1000 / (now_ns - from_ns));
}
