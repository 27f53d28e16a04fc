/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What lies in a stream behind a wait for a word. When it will run cannot be told yet, so it is kept
 * in a list until the word has the value; a thread looks at the words while there are such lists. On a
 * control device nobody knows when a kernel will end, so it stays in the list until it has. */
#define _GNU_SOURCE
#include "drv_control.h"

#include <stdlib.h>
#include <time.h>

#define LOOK_NS 10000

enum kind { WORD, WORK, RECORD, REACHED, AFTER };

struct sim_deferred {
	struct sim_deferred *next;
	enum kind kind;
	CUdeviceptr word;
	uint32_t value;
	unsigned flags; /* how it is compared */
	uint64_t ns;	/* of work; when a record was asked for */
	uint64_t ticket; /* of work that the control device has */
	bool refused;	 /* by it */
	CUevent event;	/* to record, or to wait for */
	uint64_t number; /* of another stream's operations, or of the event's records */
	CUstream stream;
};

static bool looks; /* there is a thread */
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;

static bool is_behind(CUstream stream, uint64_t number)
{
	return stream->resumed < number;
}

/* A kernel goes to the GPU as soon as nothing before it holds it back but kernels that are there: they run in
 * their order. */
static void submit_ahead(CUstream stream)
{
	if (!drv_controlled() || stream->ready_ns > sim_now_ns())
		return;
	for (struct sim_deferred *one = stream->deferred; one != NULL; one = one->next) {
		if (one->kind != WORK && one->kind != RECORD)
			return;
		if (one->kind != WORK || one->ns == 0 || one->ticket != 0 || one->refused)
			continue;
		one->ticket = drv_control_submit(stream, one->ns);
		one->refused = one->ticket == 0;
	}
}

/* The kernel has been on the GPU of the control device. */
static bool has_run(CUstream stream, struct sim_deferred *one)
{
	uint64_t ns = 0;

	if (one->ns == 0 || one->refused)
		return true;
	if (one->ticket == 0 || !drv_control_ended(one->ticket, &ns))
		return false;
	if (stream->ready_ns < ns)
		stream->ready_ns = ns;
	return true;
}

/* True when it need not wait any longer, and is done. */
static bool resume(CUstream stream, struct sim_deferred *one)
{
	uint64_t now = sim_now_ns(), ns;

	switch (one->kind) {
	case WORD:
		if (!drv_word_is(one->word, one->value, one->flags))
			return false;
		if (stream->ready_ns < now)
			stream->ready_ns = now;
		return true;
	case AFTER:
		if (is_behind(one->stream, one->number))
			return false;
		if (stream->ready_ns < one->stream->ready_ns)
			stream->ready_ns = one->stream->ready_ns;
		return true;
	case WORK:
		if (drv_controlled())
			return has_run(stream, one);
		drv_stream_book(stream, stream->ready_ns, one->ns);
		return true;
	case RECORD:
		if (one->event != NULL)
			drv_event_reached(one->event,
					  stream->ready_ns > one->ns ? stream->ready_ns : one->ns);
		return true;
	case REACHED:
		if (one->event != NULL && !drv_event_has_reached(one->event, one->number, &ns))
			return false;
		if (one->event != NULL && ns > stream->ready_ns)
			stream->ready_ns = ns;
		return true;
	}
	return true;
}

static bool settle(CUstream stream)
{
	bool moved = false;

	submit_ahead(stream);
	while (stream->deferred != NULL && resume(stream, stream->deferred)) {
		struct sim_deferred *done = stream->deferred;

		stream->deferred = done->next;
		if (stream->deferred == NULL)
			stream->deferred_end = NULL;
		stream->resumed++;
		free(done);
		moved = true;
		submit_ahead(stream);
	}
	return moved;
}

/* Nobody else says when it need not wait any longer: of kernels that run, the control device does. */
static bool must_look(CUstream stream)
{
	return stream->deferred != NULL &&
	       (!drv_controlled() || stream->deferred->kind == WORD || stream->deferred->ticket == 0);
}

/* With the lock held. Whether anything still waits that has to be looked at. */
static bool settle_all(void)
{
	bool moved = true, any = false;

	while (moved) {
		moved = any = false;
		for (CUcontext c = drv.contexts; c != NULL; c = c->next) {
			moved = (!c->dead && settle(&c->legacy)) || moved;
			any = any || (!c->dead && must_look(&c->legacy));
			for (CUstream s = c->dead ? NULL : c->streams; s != NULL; s = s->next) {
				moved = settle(s) || moved;
				any = any || must_look(s);
			}
		}
	}
	if (any) /* a kernel may have ended just now that a wait for a word lies behind */
		pthread_cond_signal(&some);
	return any;
}

static void *look(void *nothing)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };

	(void)nothing;
	drv_lock();
	for (;;) {
		while (!settle_all())
			pthread_cond_wait(&some, &drv.lock);
		drv_unlock(CUDA_SUCCESS);
		nanosleep(&pause, NULL);
		drv_lock();
	}
	return NULL;
}

static bool looked_for(void)
{
	pthread_t thread;

	if (!looks && pthread_create(&thread, NULL, look, NULL) == 0) {
		pthread_detach(thread);
		looks = true;
	}
	pthread_cond_signal(&some);
	return looks;
}

static CUresult append(CUstream stream, struct sim_deferred what)
{
	struct sim_deferred *one = malloc(sizeof(*one));

	if (one == NULL || !looked_for()) {
		free(one);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*one = what;
	if (stream->deferred_end != NULL)
		stream->deferred_end->next = one;
	else
		stream->deferred = one;
	stream->deferred_end = one;
	stream->queued++;
	return CUDA_SUCCESS;
}

static CUresult behind(CUstream stream, CUstream other)
{
	if (other->deferred == NULL)
		return CUDA_SUCCESS;
	return append(stream, (struct sim_deferred){.kind = AFTER, .stream = other, .number = other->queued});
}

/* The legacy default stream and the blocking ones wait for each other. */
static CUresult behind_others(CUstream stream)
{
	if (stream->flags & SIM_STREAM_NON_BLOCKING)
		return CUDA_SUCCESS;
	if (stream != &stream->ctx->legacy)
		return behind(stream, &stream->ctx->legacy);
	for (CUstream s = stream->ctx->streams; s != NULL; s = s->next)
		if (!(s->flags & SIM_STREAM_NON_BLOCKING))
			NEED(behind(stream, s));
	return CUDA_SUCCESS;
}

void drv_deferred_settle(void)
{
	settle_all();
}

bool drv_deferred(CUstream stream)
{
	if (stream->deferred != NULL)
		settle_all();
	return stream->deferred != NULL;
}

bool drv_deferred_work(CUstream stream, uint64_t ns, CUresult *result)
{
	uint64_t ready;

	*result = behind_others(stream);
	if (*result != CUDA_SUCCESS)
		return true;
	if (!drv_deferred(stream) && (ns == 0 || !drv_controlled()))
		return false;
	ready = drv_stream_ready_ns(stream);
	if (drv_controlled() && ready != SIM_NEVER_NS && stream->ready_ns < ready)
		stream->ready_ns = ready;
	*result = append(stream, (struct sim_deferred){ .kind = WORK, .ns = ns });
	if (*result == CUDA_SUCCESS)
		submit_ahead(stream);
	return true;
}

bool drv_deferred_record(CUstream stream, CUevent event, CUresult *result)
{
	*result = behind_others(stream);
	if (*result != CUDA_SUCCESS || !drv_deferred(stream))
		return *result != CUDA_SUCCESS;
	*result = append(stream, (struct sim_deferred){.kind = RECORD, .event = event, .ns = sim_now_ns()});
	return true;
}

bool drv_deferred_event(CUstream stream, CUevent event, CUresult *result)
{
	*result = CUDA_SUCCESS;
	if (drv_event_ns(event) != SIM_NEVER_NS && !drv_deferred(stream))
		return false;
	*result = append(
		stream,
		(struct sim_deferred){.kind = REACHED, .event = event, .number = drv_event_deferred(event)});
	return true;
}

static void forget(CUstream in, CUevent event, CUstream stream)
{
	for (struct sim_deferred *one = in->deferred; one != NULL; one = one->next) {
		if (event != NULL && one->event == event)
			one->event = NULL;
		if (stream != NULL && one->stream == stream)
			*one = (struct sim_deferred){ .next = one->next, .kind = WORK };
	}
}

void drv_deferred_forget(CUevent event, CUstream stream)
{
	for (CUcontext c = drv.contexts; c != NULL; c = c->next) {
		forget(&c->legacy, event, stream);
		for (CUstream s = c->streams; s != NULL; s = s->next)
			forget(s, event, stream);
	}
}

void drv_deferred_drop(CUstream stream)
{
	drv_deferred_forget(NULL, stream);
	while (stream->deferred != NULL) {
		struct sim_deferred *one = stream->deferred;

		stream->deferred = one->next;
		free(one);
	}
	stream->deferred_end = NULL;
	stream->resumed = stream->queued;
}

/* The difference counts, as the driver has it, so that a counter may wrap. */
bool drv_word_is(CUdeviceptr address, uint32_t value, unsigned flags)
{
	int32_t beyond = (int32_t)(__atomic_load_n((uint32_t *)(uintptr_t)address, __ATOMIC_ACQUIRE) - value);

	return flags == CU_STREAM_WAIT_VALUE_EQ ? beyond == 0 : beyond >= 0;
}

CUresult drv_deferred_wait(CUstream handle, CUdeviceptr address, uint32_t value, unsigned flags)
{
	struct sim_deferred wait = { .kind = WORD, .word = address, .value = value, .flags = flags };
	CUresult result;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (stream->capture != NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	result = behind_others(stream);
	if (result == CUDA_SUCCESS)
		result = append(stream, wait);
	settle_all();
	return drv_unlock(result);
}
