/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "virtual_job.h"

#include "harness.h"
#include "time/share.h"

#define TAKE_NS MS		 /* as admission.c */
#define UNKNOWN_RESERVE_NS (50 * US)
#define GROUP_NS (200 * US)	 /* as groups.c */
#define STALL_NS (10 * MS)	 /* as watch.c */
#define LOOK_NS (400 * US)	 /* as poller.c */
#define LOOK_AT_MOST_NS MS
#define CALL_NS (3 * US)	 /* of the program, for a launch */
#define POLL_NS (10 * US)

static struct virtual_job job;

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static struct vgpu_share share(void)
{
	return (struct vgpu_share){&job.share_word, job.plan->percent, VGPU_SHARE_BURST_NS};
}

static void settle(int64_t more_ns)
{
	struct vgpu_share of_job = share();

	vgpu_share_settle(&of_job, job.gpu.now, more_ns);
}

static struct virtual_group *group_of(struct virtual_process *p, uint32_t stream, uint32_t number)
{
	return &p->stream[stream].group[number % GROUPS];
}

/* ---- the program ---- */

static bool rides_along(struct virtual_process *p, uint32_t stream, uint64_t expected_ns)
{
	uint64_t gone = job.gpu.now - p->progress_ns;
	struct vgpu_share of_job = share();

	return expected_ns != VGPU_UNKNOWN_NS && p->in_flight != 0 && p->expected_ns > gone &&
	       p->expected_ns - gone >= expected_ns / 4 * 3 &&
	       p->stream[stream].head == p->stream[stream].tail &&
	       vgpu_share_credit(&of_job, job.gpu.now) >= -(int64_t)expected_ns;
}

/* Takes credit; false when there is none for *wait_ns. */
static bool admitted(struct virtual_process *p, uint64_t need_ns, uint64_t *wait_ns)
{
	struct vgpu_share of_job = share();
	uint64_t from = 0;

	if (p->credit_ns < (int64_t)need_ns) {
		p->credit_ns += (int64_t)vgpu_share_take(&of_job, job.gpu.now, need_ns, TAKE_NS, &from);
		if (p->credit_ns < (int64_t)need_ns) {
			*wait_ns = from - job.gpu.now;
			return false;
		}
	}
	p->credit_ns -= (int64_t)need_ns;
	return true;
}

static void note_launch(struct virtual_process *p, uint32_t stream, uint64_t key, uint64_t expected,
			uint64_t unseen, uint64_t reserved_ns, uint64_t last_kernel)
{
	struct virtual_group *g = group_of(p, stream, p->stream[stream].head - 1);

	if (p->stream[stream].head == p->stream[stream].tail || g->closed ||
	    g->expected_ns == VGPU_UNKNOWN_NS || expected == VGPU_UNKNOWN_NS) {
		g = group_of(p, stream, p->stream[stream].head++);
		*g = (struct virtual_group){.first_ns = job.gpu.now};
		if (p->in_flight++ == 0)
			p->progress_ns = job.gpu.now;
	}
	g->launches++;
	g->key = g->launches == 1 ? key : 0;
	p->unknown += expected == VGPU_UNKNOWN_NS;
	g->expected_ns = expected == VGPU_UNKNOWN_NS ? expected : g->expected_ns + expected;
	g->unseen_ns = expected == VGPU_UNKNOWN_NS ? expected : g->unseen_ns + unseen;
	g->closed = g->expected_ns >= GROUP_NS || g->launches >= 256;
	g->reserved_ns += reserved_ns;
	p->expected_ns += reserved_ns;
	g->last_ns = job.gpu.now;
	g->last_kernel = last_kernel;
}

/* 0 when it was launched, else how long to wait. timed: what it takes if it is timed. */
static uint64_t launch(uint32_t process, uint32_t stream, uint32_t kind, uint64_t length, uint64_t timed)
{
	struct virtual_process *p = &job.process[process];
	uint64_t key = vgpu_cost_key(kind + 1, 7), expected, unseen, need, wait = 0;
	struct vgpu_cost *cost = vgpu_cost_of(p->cost, key);
	bool due;

	if (p->stalled || p->unknown != 0 || p->stream[stream].head - p->stream[stream].tail >= GROUPS - 1 ||
	    job.gpu.stream[process][stream].launched - job.gpu.stream[process][stream].done == QUEUE)
		return LOOK_NS;
	expected = cost->average_ns != 0 ? cost->average_ns : VGPU_UNKNOWN_NS;
	unseen = vgpu_cost_unseen_ns(cost);
	need = expected != VGPU_UNKNOWN_NS ? expected : UNKNOWN_RESERVE_NS;
	if (!admitted(p, need, &wait)) {
		if (!rides_along(p, stream, expected))
			return wait;
		need = 0;
	}
	due = vgpu_cost_due(cost, false);
	if (due && !virtual_gpu_beside(&job.gpu, process, stream))
		vgpu_cost_alone(cost, false);
	else
		due = due && !(expected != VGPU_UNKNOWN_NS && vgpu_cost_put_off(cost, false));
	virtual_gpu_launch(&job.gpu, process, stream, length, due && length == timed ? key : 0);
	job.longest_ns = later(job.longest_ns, length);
	job.launched_ns[process] += length;
	if (due && length != timed)
		vgpu_cost_learn(p->cost, key, timed);
	note_launch(p, stream, key, expected, unseen, need, job.gpu.stream[process][stream].launched);
	return 0;
}

static void program(uint32_t process, uint32_t thread)
{
	const struct virtual_thread *does = &job.plan->thread[process][thread];
	__typeof__(&job.process[0].thread[0]) t = &job.process[process].thread[thread];
	uint32_t stream, kind;
	uint64_t length, timed, wait;

	if (t->waiting) {
		t->next_ns = job.gpu.now + POLL_NS;
		if (job.gpu.stream[process][t->stream].done < t->done)
			return;
		t->waiting = false;
		t->next_ns = job.gpu.now + (does->pause_ns != 0 ? fuzz_next(job.f) % does->pause_ns : 0);
		if (does->below)
			t->next_ns += t->took_ns * (200 - job.plan->percent) / job.plan->percent;
		if (t->next_ns > job.gpu.now)
			return;
	}
	stream = does->stream + fuzz_below(job.f, does->streams);
	kind = fuzz_below(job.f, does->kinds);
	length = does->length_ns[kind];
	if (does->varies)
		length = fuzz_between(job.f, length / 2, length * 3 / 2);
	timed = length;
	if (does->rarely_ns != 0 && fuzz_below(job.f, 50) == 0)
		length = does->rarely_ns;
	wait = launch(process, stream, thread * KINDS + kind, length, timed);
	job.held_ns += wait;
	/* The poller wakes whoever waits. */
	t->next_ns = job.gpu.now + (wait == 0 ? CALL_NS : wait < 50 * MS ? wait : 50 * MS);
	if (wait != 0)
		return;
	t->waiting = does->waits;
	t->stream = stream;
	t->took_ns = length;
	t->done = job.gpu.stream[process][stream].launched;
	if (!does->waits && does->pause_ns != 0)
		t->next_ns += fuzz_next(job.f) % does->pause_ns;
}

/* ---- the poller ---- */

static struct vgpu_measured measured(const struct virtual_group *g)
{
	return (struct vgpu_measured){.first_ns = g->first_ns,
				      .last_ns = g->last_ns,
				      .expected_ns = g->unseen_ns,
				      .pending_ns = g->pending_ns,
				      .reached_ns = g->reached_ns};
}

static uint64_t count(const struct vgpu_busy *busy)
{
	const struct vgpu_interval *span = busy->fresh.interval;
	uint64_t used = 0;

	for (uint32_t i = 0; i < busy->fresh.count; i++)
		used += vgpu_buckets_count(&job.pieces, span[i].from_ns, span[i].to_ns, UINT64_MAX,
					   job.gpu.now);
	if (used < busy->fresh.ns && busy->until_ns != 0)
		used += vgpu_buckets_count(&job.pieces, busy->start_ns, busy->until_ns, busy->fresh.ns - used,
					   job.gpu.now);
	job.counted_ns += used;
	return used;
}

/* Asks which groups are done; what is not counts until now. When
 * that was launched. */
static uint64_t ask(uint32_t process, uint32_t stream)
{
	struct virtual_process *p = &job.process[process];

	for (uint32_t n = p->stream[stream].tail; n != p->stream[stream].head; n++) {
		struct virtual_group *g = group_of(p, stream, n);
		uint64_t begun = later(g->first_ns, p->stream[stream].meter.done_ns), used, owed;
		struct vgpu_measured work;
		struct vgpu_busy busy;

		g->closed = true;
		if (job.gpu.stream[process][stream].done >= g->last_kernel) {
			g->reached_ns = job.gpu.now;
			continue;
		}
		g->pending_ns = job.gpu.now;
		work = measured(g);
		busy = vgpu_meter_pending(&p->device, &work);
		used = count(&busy);
		vgpu_meter_left(&p->device, &busy, used);
		owed = g->reserved_ns - g->paid_ns;
		g->paid_ns += used < owed ? used : owed;
		settle(used < owed ? 0 : (int64_t)(used - owed));
		p->stalled = p->stalled || (g->expected_ns != VGPU_UNKNOWN_NS &&
					    begun + g->expected_ns + STALL_NS < job.gpu.now);
		return g->first_ns;
	}
	return UINT64_MAX;
}

static void finish(struct virtual_process *p, uint32_t stream)
{
	struct virtual_group *g = group_of(p, stream, p->stream[stream].tail++);
	struct vgpu_measured work = measured(g);
	struct vgpu_busy busy = vgpu_meter_finish(&p->device, &p->stream[stream].meter, &work);

	settle((int64_t)count(&busy) - (int64_t)(g->reserved_ns - g->paid_ns));
	if (g->key != 0 && g->expected_ns == VGPU_UNKNOWN_NS)
		vgpu_cost_guess(p->cost, g->key, busy.busy_ns);
	p->unknown -= g->expected_ns == VGPU_UNKNOWN_NS;
	p->expected_ns -= g->reserved_ns;
	p->progress_ns = busy.end_ns;
	p->in_flight--;
}

/* The stream whose oldest group is done and was launched before those of the others. */
static uint32_t oldest_done(struct virtual_process *p)
{
	uint32_t oldest = STREAMS;

	for (uint32_t s = 0; s < STREAMS; s++) {
		struct virtual_group *g = group_of(p, s, p->stream[s].tail);

		if (p->stream[s].tail != p->stream[s].head && g->reached_ns != 0 &&
		    (oldest == STREAMS ||
		     g->first_ns < group_of(p, oldest, p->stream[oldest].tail)->first_ns))
			oldest = s;
	}
	return oldest;
}

static void learn(uint32_t process)
{
	for (uint32_t i = 0; i < job.gpu.timed_count[process]; i++) {
		const struct virtual_timed *timed = &job.gpu.timed[process][i];

		if (timed->beside)
			vgpu_cost_learn_beside(job.process[process].cost, timed->key, timed->took_ns);
		else
			vgpu_cost_learn(job.process[process].cost, timed->key, timed->took_ns);
	}
	job.gpu.timed_count[process] = 0;
}

static void look(uint32_t process)
{
	struct virtual_process *p = &job.process[process];
	uint64_t late = job.plan->late != 0 && fuzz_below(job.f, job.plan->late) == 0
				? fuzz_between(job.f, MS, 30 * MS)
				: 0,
		 after;
	uint64_t since = UINT64_MAX, first;
	uint32_t s;

	p->stalled = false;
	for (s = 0; s < STREAMS; s++)
		since = (first = ask(process, s)) < since ? first : since;
	while ((s = oldest_done(p)) != STREAMS)
		finish(p, s);
	vgpu_meter_rest(&p->device, since);
	learn(process);
	if (p->in_flight == 0 && p->credit_ns != 0) {
		settle(-p->credit_ns);
		p->credit_ns = 0;
	}
	after = p->expected_ns < LOOK_NS	   ? LOOK_NS
		: p->expected_ns > LOOK_AT_MOST_NS ? LOOK_AT_MOST_NS
						   : p->expected_ns;
	after += late + fuzz_between(job.f, 0, 100 * US);
	job.latest_ns = later(job.latest_ns, after);
	p->look_ns = job.gpu.now + after;
}

/* ---- both ---- */

/* What comes next; looks come before launches. */
static uint64_t next_event(uint32_t *process, uint32_t *thread)
{
	uint64_t first = UINT64_MAX;

	for (uint32_t p = 0; p < job.plan->processes; p++) {
		if (job.process[p].look_ns < first) {
			first = job.process[p].look_ns;
			*process = p;
			*thread = THREADS;
		}
		for (uint32_t t = 0; t < job.plan->threads; t++) {
			if (job.process[p].thread[t].next_ns < first) {
				first = job.process[p].thread[t].next_ns;
				*process = p;
				*thread = t;
			}
		}
	}
	return first;
}

struct virtual_job *virtual_job_run(struct fuzz *f, const struct virtual_plan *plan)
{
	uint32_t process = 0, thread = 0;
	uint64_t next;

	memset(&job, 0, sizeof(job));
	job.f = f;
	job.plan = plan;
	job.share_word = BEGIN;
	virtual_gpu_begin(&job.gpu, plan->together);
	for (uint32_t p = 0; p < plan->processes; p++) {
		job.process[p].look_ns = BEGIN + fuzz_between(f, 0, LOOK_NS);
		for (uint32_t t = 0; t < plan->threads; t++)
			job.process[p].thread[t].next_ns =
				plan->thread[p][t].streams != 0 ? BEGIN + fuzz_between(f, 0, MS) : UINT64_MAX;
	}
	while ((next = next_event(&process, &thread)) < BEGIN + plan->for_ns) {
		virtual_gpu_advance(&job.gpu, next);
		if (thread == THREADS)
			look(process);
		else
			program(process, thread);
	}
	virtual_gpu_advance(&job.gpu, BEGIN + plan->for_ns);
	return &job;
}

void virtual_job_say(const struct virtual_job *j)
{
	const struct virtual_plan *p = j->plan;

	if (failures == 0)
		return;
	fprintf(stderr,
		"percent %u processes %u threads %u together %d late %u busy %llu counted %llu latest %llu "
		"longest %llu us\n",
		p->percent, p->processes, p->threads, p->together, p->late,
		(unsigned long long)(virtual_gpu_busy_ns(&j->gpu, 0, p->for_ns / MS) / US),
		(unsigned long long)(j->counted_ns / US), (unsigned long long)(j->latest_ns / US),
		(unsigned long long)(j->longest_ns / US));
	for (uint32_t t = 0; t < p->threads; t++) {
		const struct virtual_thread *does = &p->thread[0][t];

		fprintf(stderr, "streams %u to %u varies %d waits %d pause %llu us, kernels of", does->stream,
			does->stream + does->streams - 1, does->varies, does->waits,
			(unsigned long long)(does->pause_ns / US));
		for (uint32_t k = 0; k < does->kinds; k++)
			fprintf(stderr, " %llu", (unsigned long long)(does->length_ns[k] / US));
		fprintf(stderr, " us\n");
	}
}
