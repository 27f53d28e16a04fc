/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "time/timeline.h"

#include <stdbool.h>

/* Puts a span in front of the one at this index. With no room left the two oldest become one: of so long
 * ago it is no longer told what was idle. */
static void insert(struct vgpu_timeline *timeline, uint32_t at, uint64_t from_ns, uint64_t to_ns)
{
	struct vgpu_span *span = timeline->span;

	if (timeline->count < VGPU_SPANS) {
		for (uint32_t i = timeline->count++; i > at; i--)
			span[i] = span[i - 1];
	} else if (at < 2) {
		span[0] = at == 0 ? (struct vgpu_span){from_ns, span[0].to_ns} : (struct vgpu_span){span[0].from_ns, to_ns};
		return;
	} else {
		span[1].from_ns = span[0].from_ns;
		at--;
		for (uint32_t i = 0; i < at; i++)
			span[i] = span[i + 1];
	}
	span[at] = (struct vgpu_span){from_ns, to_ns};
}

/* Takes a span away whose time belongs to the one before it now. */
static void drop(struct vgpu_timeline *timeline, uint32_t at)
{
	timeline->count--;
	for (uint32_t i = at; i < timeline->count; i++)
		timeline->span[i] = timeline->span[i + 1];
}

/* The first span that ends behind this time; the count if none does. Nearly always one of the last. */
static uint32_t find(const struct vgpu_timeline *timeline, uint64_t at_ns)
{
	uint32_t next = timeline->count;

	while (next > 0 && timeline->span[next - 1].to_ns > at_ns)
		next--;
	return next;
}

/* Counts a gap in front of the span at this index, all of which has not been counted. */
static void close_gap(struct vgpu_timeline *timeline, uint32_t at, uint64_t from_ns, uint64_t to_ns)
{
	struct vgpu_span *span = timeline->span;
	bool meets_before = at > 0 && span[at - 1].to_ns == from_ns;
	bool meets_behind = at < timeline->count && span[at].from_ns == to_ns;

	if (meets_before && meets_behind) {
		span[at - 1].to_ns = span[at].to_ns;
		drop(timeline, at);
	} else if (meets_before) {
		span[at - 1].to_ns = to_ns;
	} else if (meets_behind) {
		span[at].from_ns = from_ns;
	} else {
		insert(timeline, at, from_ns, to_ns);
	}
}

void vgpu_timeline_count(struct vgpu_timeline *timeline, uint64_t from_ns, uint64_t to_ns, uint64_t ns, struct vgpu_fresh *fresh)
{
	uint64_t at = from_ns;

	fresh->ns = 0;
	fresh->count = 0;
	while (at < to_ns && fresh->ns < ns && fresh->count <= VGPU_SPANS) {
		uint32_t next = find(timeline, at);
		uint64_t until = to_ns;

		if (next < timeline->count && timeline->span[next].from_ns <= at) {
			at = timeline->span[next].to_ns;
			continue;
		}
		if (next < timeline->count && timeline->span[next].from_ns < until)
			until = timeline->span[next].from_ns;
		if (until - at > ns - fresh->ns)
			until = at + (ns - fresh->ns);
		close_gap(timeline, next, at, until);
		fresh->span[fresh->count++] = (struct vgpu_span){at, until};
		fresh->ns += until - at;
		at = until;
	}
}

uint64_t vgpu_timeline_take(struct vgpu_timeline *timeline, uint64_t from_ns, uint64_t to_ns, uint64_t ns)
{
	uint64_t taken = 0;

	for (uint32_t at = find(timeline, from_ns); at < timeline->count && taken < ns; ) {
		struct vgpu_span *span = &timeline->span[at], all = *span;
		uint64_t from = all.from_ns > from_ns ? all.from_ns : from_ns, to = all.to_ns < to_ns ? all.to_ns : to_ns;

		if (from >= to)
			break;
		to = to - from > ns - taken ? from + (ns - taken) : to;
		taken += to - from;
		if (to == all.to_ns && from == all.from_ns) {
			drop(timeline, at);
			continue;
		}
		if (to == all.to_ns)
			span->to_ns = from;
		else
			span->from_ns = to;
		/* What is left in front of it, if there is a place for it. */
		if (to != all.to_ns && from != all.from_ns && timeline->count < VGPU_SPANS)
			insert(timeline, at++, all.from_ns, from);
		at++;
	}
	return taken;
}

void vgpu_timeline_forget(struct vgpu_timeline *timeline, uint64_t until_ns)
{
	while (timeline->count != 0 && timeline->span[0].to_ns <= until_ns)
		drop(timeline, 0);
}

uint64_t vgpu_timeline_room(const struct vgpu_timeline *timeline, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t room = to_ns > from_ns ? to_ns - from_ns : 0;

	for (uint32_t i = find(timeline, from_ns); i < timeline->count && timeline->span[i].from_ns < to_ns; i++) {
		uint64_t from = timeline->span[i].from_ns > from_ns ? timeline->span[i].from_ns : from_ns;

		room -= (timeline->span[i].to_ns < to_ns ? timeline->span[i].to_ns : to_ns) - from;
	}
	return room;
}
