/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "streams/sample.h"

#include "admission/turns.h"
#include "api/symbols.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "streams/groups.h"
#include "streams/semaphore.h"
#include "time/cost.h"

#include <sched.h>

/* Longer kernels are not worth making the GPU wait. */
#define HELD_BELOW_NS 200000u
#define HELD_AT_MOST_NS 1000000u
/* What the GPU's counters (NVML's GPM) say beyond what two events see of a kernel that runs alone (H200). */
#define BEYOND_EVENTS_NS 75u
#define DESTROY_WAIT_NS 100000000u
/* Where a call was not back so often in a row it waits for its stream, as that of a graph with memory may:
 * then it is timed without being held, and held again every so often, as its thread may just have had no
 * core. */
#define LATE_CALLS 2u
#define LATE_TRIES 16u

enum { FREE = 0, BUSY, RUNNING };

static uint32_t word_of(const struct vgpu_engine *engine, const struct vgpu_sample *sample)
{
	return (uint32_t)(sample - engine->sample);
}

/* The bit goes first: whoever takes the place next sets it. */
static void set_free(struct vgpu_engine *engine, struct vgpu_sample *sample)
{
	__atomic_fetch_and(&engine->samples_taken, ~(1u << word_of(engine, sample)), __ATOMIC_RELAXED);
	__atomic_store_n(&sample->state, FREE, __ATOMIC_RELEASE);
}

/* Whether the GPU has other work of this job, which may come before a launch into this stream. */
static bool others_at_work(struct vgpu_process *p, struct vgpu_engine *engine, CUcontext context,
			   CUstream stream)
{
	uint32_t high = __atomic_load_n(&engine->streams_high, __ATOMIC_ACQUIRE);

	for (uint32_t s = 0; s < high; s++) {
		struct vgpu_stream *other = &engine->stream[s];

		if (GET(other->state) == VGPU_STREAM_LIVE &&
		    (GET(other->handle) != stream || GET(other->context) != context) &&
		    !vgpu_groups_idle(other))
			return true;
	}
	return vgpu_turns_siblings_busy(p, (uint32_t)(engine - vgpu_engine(p, 0)), vgpu_now_ns());
}

static bool has_events(struct vgpu_sample *sample, CUcontext context)
{
	vgpu_fn_cuEventCreate *create = VGPU_REAL(cuEventCreate);

	if (GET(sample->context) == context && sample->end != NULL)
		return true;
	/* Those of a context that is gone went with it; those of another one stay until then. */
	SET(sample->context, NULL);
	if (create == NULL || create(&sample->before, 0) != CUDA_SUCCESS ||
	    create(&sample->begin, 0) != CUDA_SUCCESS || create(&sample->end, 0) != CUDA_SUCCESS)
		return false;
	SET(sample->context, context);
	return true;
}

static struct vgpu_late_call *late_call(struct vgpu_engine *engine, uint64_t key)
{
	return &engine->late_call[key % VGPU_LATE_CALLS];
}

static void note_late(struct vgpu_engine *engine, uint64_t key)
{
	struct vgpu_late_call *late = late_call(engine, key);

	SET(late->times, GET(late->key) == key ? GET(late->times) + 1 : 1);
	SET(late->key, key);
}

static bool is_mostly_late(struct vgpu_engine *engine, uint64_t key)
{
	struct vgpu_late_call *late = late_call(engine, key);

	return GET(late->key) == key && GET(late->times) >= LATE_CALLS &&
	       ADD(late->times, 1u) % LATE_TRIES != 0;
}

static void note_back(struct vgpu_engine *engine, uint64_t key)
{
	struct vgpu_late_call *late = late_call(engine, key);

	if (GET(late->key) == key)
		SET(late->key, 0);
}

static void hold_sample(struct vgpu_process *p, struct vgpu_engine *engine, struct vgpu_sample *sample,
			CUcontext context, CUstream stream)
{
	uint64_t now = vgpu_now_ns();
	uint32_t value;

	if (!vgpu_semaphore_ready(engine) || is_mostly_late(engine, sample->key))
		return;
	value = vgpu_semaphore_value(engine, word_of(engine, sample)) + 1;
	SET(sample->waits_since_ns, now);
	__atomic_store_n(&sample->semaphore_value, value, __ATOMIC_RELEASE);
	if (!vgpu_semaphore_wait(p, engine, word_of(engine, sample), value, context, stream,
				 now + 2 * HELD_AT_MOST_NS))
		SET(sample->semaphore_value, 0);
}

static bool signal_it(struct vgpu_engine *engine, struct vgpu_sample *sample)
{
	uint32_t value = __atomic_exchange_n(&sample->semaphore_value, 0, __ATOMIC_ACQ_REL);

	if (value != 0)
		vgpu_semaphore_signal(engine, word_of(engine, sample), value);
	return value != 0;
}

struct vgpu_sample *vgpu_sample_begin(struct vgpu_process *p, struct vgpu_engine *engine, CUcontext context,
				      CUstream stream, uint64_t key, const void *what, uint64_t expected_ns,
				      bool at_work)
{
	vgpu_fn_cuEventRecord *record = VGPU_REAL(cuEventRecord);
	bool beside = others_at_work(p, engine, context, stream);
	struct vgpu_sample *sample = NULL;

	if (!beside && !at_work)
		vgpu_cost_alone(vgpu_cost_of(engine->cost, key), vgpu_sample_roughly(engine));
	else if (expected_ns != VGPU_UNKNOWN_NS &&
		 vgpu_cost_put_off(vgpu_cost_of(engine->cost, key), vgpu_sample_roughly(engine)))
		return NULL;
	for (uint32_t i = 0; i < VGPU_SAMPLES && sample == NULL; i++) {
		CUcontext of = GET(engine->sample[i].context);
		uint32_t state = FREE;

		if ((of == context || of == NULL) &&
		    __atomic_compare_exchange_n(&engine->sample[i].state, &state, BUSY, 0, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			sample = &engine->sample[i];
	}
	if (sample == NULL)
		return NULL;
	__atomic_fetch_or(&engine->samples_taken, 1u << word_of(engine, sample), __ATOMIC_SEQ_CST);
	if (record == NULL || !has_events(sample, context)) {
		set_free(engine, sample);
		return NULL;
	}
	SET(sample->key, key);
	sample->beside = beside;
	SET(sample->spoilt, 0);
	sample->kernel_key = vgpu_cost_key((uint64_t)(uintptr_t)what, VGPU_ANY_SHAPE);
	if (expected_ns < HELD_BELOW_NS || expected_ns == VGPU_UNKNOWN_NS)
		hold_sample(p, engine, sample, context, stream);
	record(sample->before, stream);
	record(sample->begin, stream);
	return sample;
}

void vgpu_sample_end(struct vgpu_engine *engine, struct vgpu_sample *sample, CUstream stream, uint64_t batch,
		     bool launched)
{
	vgpu_fn_cuEventRecord *record = VGPU_REAL(cuEventRecord);

	record(sample->end, stream);
	if (signal_it(engine, sample))
		note_back(engine, sample->key);
	sample->batch = batch;
	if (!launched)
		SET(sample->key, 0);
	__atomic_store_n(&sample->state, RUNNING, __ATOMIC_RELEASE);
}

/* True when it is done, and learnt from. */
static bool finish(struct vgpu_engine *engine, struct vgpu_sample *sample)
{
	vgpu_fn_cuEventElapsedTime *elapsed = VGPU_REAL(cuEventElapsedTime);
	float nothing_ms, ms;
	void (*learn)(struct vgpu_cost *, uint64_t, uint64_t) =
		sample->beside ? vgpu_cost_learn_beside : vgpu_cost_learn;
	CUresult result;
	double took_ns;

	if (elapsed == NULL)
		return true;
	result = elapsed(&ms, sample->begin, sample->end);
	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (result != CUDA_SUCCESS || sample->key == 0 || GET(sample->spoilt) != 0 ||
	    elapsed(&nothing_ms, sample->before, sample->begin) != CUDA_SUCCESS)
		return true;
	/* The least that two events were apart is what timing itself takes. */
	if (engine->overhead_ns == 0 || nothing_ms * 1e6 < (double)engine->overhead_ns)
		engine->overhead_ns = (uint64_t)(nothing_ms * 1e6) + 1;
	took_ns = ms * 1e6 - (double)engine->overhead_ns + BEYOND_EVENTS_NS;
	learn(engine->cost, sample->key, took_ns < 1 ? 1 : (uint64_t)took_ns);
	vgpu_cost_of(engine->cost, sample->kernel_key);
	learn(engine->cost, sample->kernel_key, took_ns < 1 ? 1 : (uint64_t)took_ns);
	return true;
}

uint64_t vgpu_samples_let_go(struct vgpu_engine *engine, uint64_t now_ns)
{
	uint32_t taken = __atomic_load_n(&engine->samples_taken, __ATOMIC_ACQUIRE);
	uint64_t next = 0;

	for (uint32_t i = 0; i < VGPU_SAMPLES; i++) {
		struct vgpu_sample *sample = &engine->sample[i];
		uint64_t until, key;

		if ((taken & 1u << i) == 0 ||
		    __atomic_load_n(&sample->semaphore_value, __ATOMIC_ACQUIRE) == 0)
			continue;
		until = GET(sample->waits_since_ns) + HELD_AT_MOST_NS;
		key = GET(sample->key);
		if (now_ns <= until) {
			next = next == 0 || until - now_ns < next ? until - now_ns + 1 : next;
			continue;
		}
		SET(sample->spoilt, 1);
		if (signal_it(engine, sample))
			note_late(engine, key);
	}
	return next;
}

bool vgpu_samples_look(struct vgpu_engine *engine)
{
	uint32_t taken = __atomic_load_n(&engine->samples_taken, __ATOMIC_ACQUIRE);
	bool any = false;

	for (uint32_t i = 0; i < VGPU_SAMPLES; i++) {
		struct vgpu_sample *sample = &engine->sample[i];
		uint32_t running = RUNNING;

		if ((taken & 1u << i) == 0)
			continue;
		if (!__atomic_compare_exchange_n(&sample->state, &running, BUSY, 0, __ATOMIC_ACQUIRE,
						 __ATOMIC_RELAXED)) {
			any = any || running != FREE;
			continue;
		}
		if (!vgpu_batch_is_held(&engine->load, sample->batch) && finish(engine, sample)) {
			set_free(engine, sample);
		} else {
			__atomic_store_n(&sample->state, RUNNING, __ATOMIC_RELEASE);
			any = true;
		}
	}
	return any;
}

/* Also one that is free: a launch in another context may begin with it meanwhile. Who has it BUSY is in a
 * call that does not wait. */
static void take(struct vgpu_sample *sample, uint64_t until_ns)
{
	uint32_t state = __atomic_load_n(&sample->state, __ATOMIC_RELAXED);

	while (state == BUSY || !__atomic_compare_exchange_n(&sample->state, &state, BUSY, 0,
							     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		if (vgpu_now_ns() >= until_ns)
			return;
		sched_yield();
		state = __atomic_load_n(&sample->state, __ATOMIC_RELAXED);
	}
}

void vgpu_samples_context_gone(struct vgpu_engine *engine, CUcontext context)
{
	uint64_t until_ns = vgpu_now_ns() + DESTROY_WAIT_NS;

	for (uint32_t i = 0; i < VGPU_SAMPLES; i++) {
		struct vgpu_sample *sample = &engine->sample[i];

		if (GET(sample->context) != context)
			continue;
		signal_it(engine, sample);
		take(sample, until_ns);
		/* Others may have had it since it was looked at. */
		if (GET(sample->context) == context) {
			sample->before = sample->begin = sample->end = NULL;
			SET(sample->context, NULL);
		}
		set_free(engine, sample);
	}
}
