/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "time/intervals.h"

#include <stdbool.h>

/* Puts a interval in front of the one at this index. With no room left the two oldest become one: of so long
 * ago it is no longer told what was idle. */
static void insert(struct vgpu_intervals *intervals, uint32_t at, uint64_t from_ns, uint64_t to_ns)
{
	struct vgpu_interval *interval = intervals->interval;

	if (intervals->count < VGPU_INTERVALS) {
		for (uint32_t i = intervals->count++; i > at; i--)
			interval[i] = interval[i - 1];
	} else if (at < 2) {
		interval[0] = at == 0 ? (struct vgpu_interval){from_ns, interval[0].to_ns}
				      : (struct vgpu_interval){interval[0].from_ns, to_ns};
		return;
	} else {
		interval[1].from_ns = interval[0].from_ns;
		at--;
		for (uint32_t i = 0; i < at; i++)
			interval[i] = interval[i + 1];
	}
	interval[at] = (struct vgpu_interval){from_ns, to_ns};
}

/* Takes a interval away whose time belongs to the one before it now. */
static void drop(struct vgpu_intervals *intervals, uint32_t at)
{
	intervals->count--;
	for (uint32_t i = at; i < intervals->count; i++)
		intervals->interval[i] = intervals->interval[i + 1];
}

/* The first interval that ends behind this time; the count if none does. Nearly always one of the last. */
static uint32_t find(const struct vgpu_intervals *intervals, uint64_t at_ns)
{
	uint32_t next = intervals->count;

	while (next > 0 && intervals->interval[next - 1].to_ns > at_ns)
		next--;
	return next;
}

/* Counts a gap in front of the interval at this index, all of which has not been counted. */
static void close_gap(struct vgpu_intervals *intervals, uint32_t at, uint64_t from_ns, uint64_t to_ns)
{
	struct vgpu_interval *interval = intervals->interval;
	bool meets_before = at > 0 && interval[at - 1].to_ns == from_ns;
	bool meets_behind = at < intervals->count && interval[at].from_ns == to_ns;

	if (meets_before && meets_behind) {
		interval[at - 1].to_ns = interval[at].to_ns;
		drop(intervals, at);
	} else if (meets_before) {
		interval[at - 1].to_ns = to_ns;
	} else if (meets_behind) {
		interval[at].from_ns = from_ns;
	} else {
		insert(intervals, at, from_ns, to_ns);
	}
}

void vgpu_intervals_count(struct vgpu_intervals *intervals, uint64_t from_ns, uint64_t to_ns, uint64_t ns,
			  struct vgpu_fresh *fresh)
{
	uint64_t at = from_ns;

	fresh->ns = 0;
	fresh->count = 0;
	while (at < to_ns && fresh->ns < ns && fresh->count <= VGPU_INTERVALS) {
		uint32_t next = find(intervals, at);
		uint64_t until = to_ns;

		if (next < intervals->count && intervals->interval[next].from_ns <= at) {
			at = intervals->interval[next].to_ns;
			continue;
		}
		if (next < intervals->count && intervals->interval[next].from_ns < until)
			until = intervals->interval[next].from_ns;
		if (until - at > ns - fresh->ns)
			until = at + (ns - fresh->ns);
		close_gap(intervals, next, at, until);
		fresh->interval[fresh->count++] = (struct vgpu_interval){at, until};
		fresh->ns += until - at;
		at = until;
	}
}

uint64_t vgpu_intervals_take(struct vgpu_intervals *intervals, uint64_t from_ns, uint64_t to_ns, uint64_t ns)
{
	uint64_t taken = 0;

	for (uint32_t at = find(intervals, from_ns); at < intervals->count && taken < ns; ) {
		struct vgpu_interval *interval = &intervals->interval[at], all = *interval;
		uint64_t from = all.from_ns > from_ns ? all.from_ns : from_ns,
			 to = all.to_ns < to_ns ? all.to_ns : to_ns;

		if (from >= to)
			break;
		to = to - from > ns - taken ? from + (ns - taken) : to;
		taken += to - from;
		if (to == all.to_ns && from == all.from_ns) {
			drop(intervals, at);
			continue;
		}
		if (to == all.to_ns)
			interval->to_ns = from;
		else
			interval->from_ns = to;
		/* What is left in front of it, if there is a place for it. */
		if (to != all.to_ns && from != all.from_ns && intervals->count < VGPU_INTERVALS)
			insert(intervals, at++, all.from_ns, from);
		at++;
	}
	return taken;
}

void vgpu_intervals_forget(struct vgpu_intervals *intervals, uint64_t until_ns)
{
	while (intervals->count != 0 && intervals->interval[0].to_ns <= until_ns)
		drop(intervals, 0);
}

uint64_t vgpu_intervals_room(const struct vgpu_intervals *intervals, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t room = to_ns > from_ns ? to_ns - from_ns : 0;

	for (uint32_t i = find(intervals, from_ns);
	     i < intervals->count && intervals->interval[i].from_ns < to_ns; i++) {
		uint64_t from =
			intervals->interval[i].from_ns > from_ns ? intervals->interval[i].from_ns : from_ns;

		room -= (intervals->interval[i].to_ns < to_ns ? intervals->interval[i].to_ns : to_ns) - from;
	}
	return room;
}
