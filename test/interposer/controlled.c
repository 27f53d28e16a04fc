/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Credit, meter and averages together, as gate.c, groups.c and keeper.c use them, on a GPU that exists
 * only in virtual time: what it was really kept busy is known to the nanosecond. */
#include "fuzz.h"
#include "harness.h"
#include "cost.h"
#include "meter.h"
#include "share.h"

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define BEGIN (100000 * SECOND)
#define TAKE_NS MS		 /* as gate.c */
#define UNKNOWN_RESERVE_NS (50 * US)
#define STALL_AT_MOST_NS (250 * MS)
#define GROUP_NS (200 * US)	 /* as groups.c */
#define STALL_NS (10 * MS)
#define LOOK_NS (400 * US)	 /* as keeper.c */
#define STREAMS 4
#define GROUPS 64
#define KINDS 6
#define MOST_MS 61000

struct group {
	uint64_t first_ns, last_ns, pending_ns, expected_ns, reserved_ns, done_ns, key;
	uint32_t launches;
};

struct stream {
	struct vgpu_meter meter;
	uint64_t free_ns; /* on the GPU */
	uint32_t head, tail;
	struct group group[GROUPS];
};

/* What is tried. */
struct plan {
	uint32_t percent;
	uint32_t streams;
	uint32_t kinds;
	uint64_t length_ns[KINDS];
	bool varies;	 /* from half to one and a half of it, as the data are */
	bool together;	 /* kernels of several streams run at once */
	uint32_t late;	 /* one look in so many is late, by up to 30 ms */
	uint64_t pause_ns; /* of the program after a launch, at most */
	bool below;	 /* it uses half of its share */
	uint64_t for_ns;
};

struct world {
	struct fuzz *f;
	const struct plan *plan;
	uint64_t now, free_ns, longest_ns, latest_ns, held_ns;
	uint64_t share_word, busy_until, counted_ns;
	int64_t credit_ns;
	uint32_t in_flight, unknown;
	bool stalled;
	struct stream stream[STREAMS];
	uint64_t ended_ns; /* until when it was busy, all streams together */
	uint32_t busy_ns[MOST_MS]; /* of each millisecond */
};

static struct vgpu_cost table[VGPU_COSTS];
static struct world world;

static uint64_t between(struct fuzz *f, uint64_t least, uint64_t most)
{
	return least + fuzz_next(f) % (most - least + 1);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static struct vgpu_share share_of(struct world *w)
{
	return (struct vgpu_share){&w->share_word, w->plan->percent, VGPU_SHARE_BURST_NS};
}

/* Notes the part of [from, to) in which nothing else ran. Launches come in order of time; with several
 * streams at once the later of two that start in turn may be noted first, which only leaves time out. */
static void ran(struct world *w, uint64_t from, uint64_t to)
{
	from = later(from, w->ended_ns);
	w->ended_ns = later(w->ended_ns, to);
	for (; from < to; ) {
		uint64_t ms = (from - BEGIN) / MS, end = BEGIN + (ms + 1) * MS;

		end = end < to ? end : to;
		if (ms >= MOST_MS)
			return;
		w->busy_ns[ms] += (uint32_t)(end - from);
		from = end;
	}
}

static uint64_t on_gpu(struct world *w, struct stream *s, uint64_t length)
{
	uint64_t start = later(w->now + VGPU_LAUNCH_NS, s->free_ns);

	if (!w->plan->together)
		start = later(start, w->free_ns);
	s->free_ns = w->free_ns = start + length;
	ran(w, start, start + length);
	return start + length;
}

/* 0 when it was launched, else how long to wait. */
static uint64_t launch(struct world *w)
{
	const struct plan *plan = w->plan;
	struct vgpu_share share = share_of(w);
	uint32_t kind = fuzz_below(w->f, plan->kinds);
	struct stream *s = &w->stream[fuzz_below(w->f, plan->streams)];
	uint64_t length = plan->length_ns[kind], key = vgpu_cost_key(kind + 1, 7), expected, need, from = 0, done, got;
	struct vgpu_cost *cost = vgpu_cost_of(table, key);
	struct group *g = &s->group[(s->head - 1) % GROUPS];

	if (w->stalled || w->unknown != 0 || s->head - s->tail >= GROUPS - 1)
		return LOOK_NS;
	expected = cost->average_ns != 0 ? cost->average_ns : VGPU_UNKNOWN_NS;
	need = expected != VGPU_UNKNOWN_NS ? expected : UNKNOWN_RESERVE_NS;
	if (w->credit_ns < (int64_t)need) {
		got = vgpu_share_take(&share, w->now, need, TAKE_NS, &from);
		if (got == 0)
			return from - w->now;
		w->credit_ns += (int64_t)got;
	}
	w->credit_ns -= (int64_t)need;
	if (plan->varies)
		length = between(w->f, length / 2, length * 3 / 2);
	w->longest_ns = later(w->longest_ns, length);
	done = on_gpu(w, s, length);
	if (vgpu_cost_due(cost))
		vgpu_cost_learn(table, key, length);
	if (s->head == s->tail || g->expected_ns == VGPU_UNKNOWN_NS || expected == VGPU_UNKNOWN_NS || g->expected_ns >= GROUP_NS) {
		g = &s->group[s->head++ % GROUPS];
		*g = (struct group){.first_ns = w->now};
		w->in_flight++;
	}
	g->launches++;
	g->key = g->launches == 1 ? key : 0;
	w->unknown += expected == VGPU_UNKNOWN_NS;
	g->expected_ns = expected == VGPU_UNKNOWN_NS ? expected : g->expected_ns + expected;
	g->reserved_ns += need;
	g->last_ns = w->now;
	g->done_ns = done;
	return 0;
}

static void finish(struct world *w, struct stream *s, struct group *g)
{
	struct vgpu_share share = share_of(w);
	struct vgpu_measured work = {.first_ns = g->first_ns, .last_ns = g->last_ns, .expected_ns = g->expected_ns,
				     .pending_ns = g->pending_ns, .reached_ns = w->now, .device_ns = w->busy_until};
	struct vgpu_busy busy = vgpu_meter_finish(&s->meter, &work);
	uint64_t used = vgpu_share_count(&w->busy_until, busy.start_ns, busy.end_ns, busy.busy_ns);

	w->counted_ns += used;
	vgpu_share_settle(&share, w->now, (int64_t)used - (int64_t)g->reserved_ns);
	if (g->key != 0 && g->expected_ns == VGPU_UNKNOWN_NS)
		vgpu_cost_guess(table, g->key, busy.busy_ns);
	w->unknown -= g->expected_ns == VGPU_UNKNOWN_NS;
	w->in_flight--;
	s->tail++;
}

static struct stream *oldest_done(struct world *w)
{
	struct stream *oldest = NULL;

	for (uint32_t i = 0; i < STREAMS; i++) {
		struct stream *s = &w->stream[i];

		if (s->tail != s->head && s->group[s->tail % GROUPS].done_ns <= w->now &&
		    (oldest == NULL || s->group[s->tail % GROUPS].first_ns < oldest->group[oldest->tail % GROUPS].first_ns))
			oldest = s;
	}
	return oldest;
}

static void look(struct world *w)
{
	struct vgpu_share share = share_of(w);

	struct stream *s;

	w->stalled = false;
	/* In the order in which they were launched. */
	while ((s = oldest_done(w)) != NULL)
		finish(w, s, &s->group[s->tail % GROUPS]);
	for (uint32_t i = 0; i < STREAMS; i++) {
		s = &w->stream[i];
		if (s->tail != s->head) {
			struct group *g = &s->group[s->tail % GROUPS];

			g->pending_ns = w->now;
			w->stalled = w->stalled || (g->expected_ns != VGPU_UNKNOWN_NS &&
						    later(g->first_ns, s->meter.done_ns) + g->expected_ns + STALL_NS < w->now);
		}
	}
	if (w->in_flight == 0 && w->credit_ns != 0) {
		vgpu_share_settle(&share, w->now, -w->credit_ns);
		w->credit_ns = 0;
	}
}

static uint64_t next_look(struct world *w)
{
	uint64_t late = w->plan->late != 0 && fuzz_below(w->f, w->plan->late) == 0 ? between(w->f, MS, 30 * MS) : 0;
	uint64_t after = LOOK_NS + late + between(w->f, 0, 100 * US);

	w->latest_ns = later(w->latest_ns, after);
	return w->now + after;
}

static void run(struct fuzz *f, const struct plan *plan)
{
	struct world *w = &world;
	uint64_t look_ns, program_ns = BEGIN, waited;

	memset(table, 0, sizeof(table));
	*w = (struct world){.f = f, .plan = plan, .now = BEGIN, .share_word = BEGIN};
	for (look_ns = next_look(w); w->now < BEGIN + plan->for_ns; ) {
		if (look_ns <= program_ns) {
			w->now = look_ns;
			look(w);
			look_ns = next_look(w);
			continue;
		}
		w->now = program_ns;
		waited = launch(w);
		w->held_ns += waited;
		/* The keeper wakes whoever waits. */
		program_ns = w->now + (waited < 50 * MS ? waited : 50 * MS);
		if (waited != 0)
			continue;
		program_ns += 3 * US + (plan->pause_ns != 0 ? fuzz_next(f) % plan->pause_ns : 0);
		if (plan->below)
			program_ns = later(program_ns, w->free_ns) + (w->free_ns - w->now) * (200 - plan->percent) / plan->percent;
	}
}

static uint64_t busy_ns(const struct world *w, uint64_t from_ms, uint64_t to_ms)
{
	uint64_t sum = 0;

	for (uint64_t ms = from_ms; ms < to_ms; ms++)
		sum += w->busy_ns[ms];
	return sum;
}

static uint64_t busiest_second_ns(const struct world *w)
{
	uint64_t sum = busy_ns(w, 0, 1000), most = sum;

	for (uint64_t ms = 1000; ms < w->plan->for_ns / MS; ms++) {
		sum = sum + w->busy_ns[ms] - w->busy_ns[ms - 1000];
		most = later(most, sum);
	}
	return most;
}

static const uint32_t percents[] = {1, 10, 25, 30, 50, 75, 90, 99};

static struct plan any_plan(struct fuzz *f, uint64_t shortest, uint64_t longest)
{
	struct plan plan = {.percent = percents[fuzz_below(f, 8)], .streams = 1 + fuzz_below(f, STREAMS), .kinds = 1 + fuzz_below(f, KINDS),
			    .late = fuzz_below(f, 2) ? 0 : 2000, .for_ns = 60 * SECOND};

	for (uint32_t k = 0; k < KINDS; k++) {
		uint64_t most = shortest;

		while (most < longest && fuzz_below(f, 5) != 0)
			most *= 2;
		plan.length_ns[k] = between(f, shortest, most < longest ? most : longest);
	}
	return plan;
}

#define CHECK_AT_MOST(got, most)                                                                                      \
	do {                                                                                                          \
		uint64_t got_ = (got), most_ = (most);                                                                \
		if (got_ > most_) {                                                                                   \
			fprintf(stderr, "%s:%d: %s is %llu us, above %llu us\n", __FILE__, __LINE__, #got,            \
				(unsigned long long)(got_ / US), (unsigned long long)(most_ / US));                   \
			failures++;                                                                                   \
		}                                                                                                     \
	} while (0)

static void say(const struct plan *p, const struct world *w)
{
	if (failures == 0)
		return;
	fprintf(stderr, "percent %u streams %u kinds %u varies %d together %d late %u below %d busy %llu counted %llu latest %llu longest %llu\n",
		p->percent, p->streams, p->kinds, p->varies, p->together, p->late, p->below,
		(unsigned long long)(busy_ns(w, 0, p->for_ns / MS) / US), (unsigned long long)(w->counted_ns / US),
		(unsigned long long)(w->latest_ns / US), (unsigned long long)(w->longest_ns / US));
	for (uint32_t k = 0; k < p->kinds; k++)
		fprintf(stderr, " %llu us", (unsigned long long)(p->length_ns[k] / US));
	fprintf(stderr, "\n");
}

/* There is always work: the share is kept in any second, and used to half a point in a minute. */
static void always_work_round(struct fuzz *f)
{
	struct plan plan = any_plan(f, 10 * US, 40 * MS);
	struct world *w = &world;
	uint64_t all, off;

	plan.varies = fuzz_below(f, 2);
	run(f, &plan);
	all = busy_ns(w, 0, 60000);
	/* What interleaved short kernels of several streams took can only be estimated, as can kernels that vary. */
	off = 60 * SECOND / 1000 * (plan.streams > 1 ? 80 : plan.varies ? 20 : 5) + w->longest_ns;
	CHECK_AT_MOST(busiest_second_ns(w), SECOND * plan.percent / 100 + VGPU_SHARE_BURST_NS * (plan.varies ? 2 : 1) +
		      w->longest_ns * (plan.varies ? 2 : 1) + w->latest_ns + off / 60);
	CHECK_AT_MOST(all, 60 * SECOND * plan.percent / 100 + off);
	CHECK_AT_MOST(60 * SECOND * plan.percent / 100, all + off + (plan.streams > 1 ? all / 5 : 0));
	say(&plan, w);
}

static void shares_are_kept_and_used(void)
{
	fuzz_rounds(24, always_work_round);
}

/* Kernels of up to a second, some of them at once: what they take beyond the share is owed. */
static void long_kernels_round(struct fuzz *f)
{
	struct plan plan = any_plan(f, MS, SECOND);
	struct world *w = &world;

	plan.percent = plan.percent < 10 ? 10 : plan.percent;
	run(f, &plan);
	CHECK_AT_MOST(busy_ns(w, 0, 60000), 60 * SECOND * plan.percent / 100 + 300 * MS + w->longest_ns);
	say(&plan, w);
}

static void what_long_kernels_take_is_owed(void)
{
	fuzz_rounds(16, long_kernels_round);
}

/* Kernels that take half of the share and pauses: the controller has no business there. */
static void below_round(struct fuzz *f)
{
	struct plan plan = any_plan(f, 10 * US, 5 * MS);
	struct world *w = &world;

	plan.below = true;
	plan.streams = 1;
	plan.percent = plan.percent < 10 ? 10 : plan.percent;
	plan.for_ns = 10 * SECOND;
	run(f, &plan);
	/* Until the kernels are known each of them is waited for. */
	CHECK_AT_MOST(w->held_ns, plan.kinds * (3 * 5 * MS + w->latest_ns));
	say(&plan, w);
}

static void a_program_below_its_share_is_not_held_back(void)
{
	fuzz_rounds(24, below_round);
}

/* What is counted is what was used. */
static void counted_round(struct fuzz *f)
{
	struct plan plan = any_plan(f, 10 * US, 40 * MS);
	struct world *w = &world;
	uint64_t all, off;

	/* Kernels of the same kind start and end together. Of those that do not, what is short hides what is long. */
	plan.together = fuzz_below(f, 2);
	plan.kinds = plan.together ? 1 : plan.kinds;
	plan.percent = 99; /* at work all the time */
	plan.for_ns = 20 * SECOND;
	run(f, &plan);
	all = busy_ns(w, 0, 20000);
	off = all / 25 + w->longest_ns + w->latest_ns;
	CHECK_AT_MOST(w->counted_ns, 20 * SECOND);
	CHECK_AT_MOST(w->counted_ns, all + off);
	CHECK_AT_MOST(all, w->counted_ns + off + VGPU_SHARE_BURST_NS);
	say(&plan, w);
}

static void what_is_counted_was_used(void)
{
	fuzz_rounds(24, counted_round);
}

int main(void)
{
	CASE(shares_are_kept_and_used);
	CASE(what_long_kernels_take_is_owed);
	CASE(a_program_below_its_share_is_not_held_back);
	CASE(what_is_counted_was_used);
	return summary();
}
