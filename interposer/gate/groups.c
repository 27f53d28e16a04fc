/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate/groups.h"

#include "api/symbols.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "gate/bucket.h"
#include "tuning.h"

/* A thread's own stream has the same handle in each thread. */
static __thread char this_thread;

struct vgpu_gate_key vgpu_gate_key(CUcontext context, CUstream handle, uint32_t device)
{
	return (struct vgpu_gate_key){.context = context,
				      .handle = handle == CU_STREAM_LEGACY ? NULL : handle,
				      .thread = handle == CU_STREAM_PER_THREAD ? &this_thread : NULL,
				      .device = device};
}

static void lock_gate(struct vgpu_gate *gate)
{
	vgpu_brief_lock(&gate->lock, VGPU_RANK_GATE);
}

static void unlock_gate(struct vgpu_gate *gate)
{
	vgpu_brief_unlock(&gate->lock);
}

void vgpu_gate_charge(struct vgpu_process *p, uint32_t device, uint64_t begun_ns, uint64_t busy_ns)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t of_job = GET(vgpu_pages.limits->device[device].job_sm_percent);
	uint32_t of_step = GET(vgpu_pages.limits->device[device].sm_percent);
	uint64_t now = vgpu_now_ns();

	if (vgpu_bucket_is_capped(of_job))
		vgpu_bucket_charge(&ledger->share_free_at_ns[device], of_job, begun_ns, now, busy_ns);
	if (vgpu_bucket_is_capped(of_step) && p->step < VGPU_MAX_STEPS)
		vgpu_bucket_charge(&ledger->step[p->step].share_free_at_ns[device], of_step, begun_ns, now,
				   busy_ns);
}

/* ---- with the lock held ---- */

static bool is_idle(const struct vgpu_gate_stream *stream)
{
	return stream->group[0].state == VGPU_GROUP_FREE && stream->group[1].state == VGPU_GROUP_FREE;
}

static bool is_stream_of(const struct vgpu_gate_stream *stream, const struct vgpu_gate_key *key)
{
	return stream->context == key->context && stream->handle == key->handle &&
	       stream->thread == key->thread;
}

static struct vgpu_gate_stream *find_stream(struct vgpu_gate *gate, const struct vgpu_gate_key *key)
{
	for (uint32_t i = 0; i < gate->high; i++) {
		if (is_stream_of(&gate->stream[i], key))
			return &gate->stream[i];
	}
	return NULL;
}

/* A place for the stream: a free one, or that of a stream of the same context which has nothing in flight,
 * whose events it goes on with. */
static struct vgpu_gate_stream *take(struct vgpu_gate *gate, const struct vgpu_gate_key *key)
{
	struct vgpu_gate_stream *place = NULL;

	for (uint32_t i = 0; i < gate->high && place == NULL; i++) {
		if (gate->stream[i].context == NULL)
			place = &gate->stream[i];
	}
	if (place == NULL && gate->high < VGPU_GATE_STREAMS) {
		place = &gate->stream[gate->high];
		SET(gate->high, gate->high + 1);
	}
	for (uint32_t i = 0; i < gate->high && place == NULL; i++) {
		if (gate->stream[i].context == key->context && is_idle(&gate->stream[i]))
			place = &gate->stream[i];
	}
	if (place == NULL)
		return NULL;
	SET(place->context, key->context);
	place->handle = key->handle;
	place->thread = key->thread;
	place->device = key->device;
	place->stalled = 0;
	place->launch_ns = 0;
	return place;
}

/* Its events are no more. */
static void forget_stream(struct vgpu_gate_stream *stream)
{
	SET(stream->context, NULL);
	for (uint32_t g = 0; g < 2; g++)
		stream->group[g] = (struct vgpu_gate_group){0};
}

static void count_launch(struct vgpu_gate_stream *stream, struct vgpu_gate_group *group)
{
	group->launches++;
	group->inside++;
	if (group->launches >= vgpu_bucket_launches(stream->launch_ns))
		group->state = VGPU_GROUP_FULL;
}

/* The group that the launch belongs to; one that is free is to be begun. */
static struct vgpu_gate_group *choose(struct vgpu_gate_stream *stream, bool anyway)
{
	struct vgpu_gate_group *chosen = NULL;

	for (uint32_t g = 0; g < 2; g++) {
		if (stream->group[g].state == VGPU_GROUP_OPEN && stream->group[g].asked == 0)
			return &stream->group[g];
		if (stream->group[g].state == VGPU_GROUP_FREE)
			chosen = &stream->group[g];
	}
	for (uint32_t g = 0; g < 2 && chosen == NULL && (anyway || stream->stalled != 0); g++) {
		if (stream->group[g].state == VGPU_GROUP_FULL && stream->group[g].asked == 0)
			chosen = &stream->group[g];
	}
	return chosen;
}

/* ---- before and behind a launch ---- */

static bool has_begun(struct vgpu_gate_group *group, CUstream handle)
{
	vgpu_fn_cuEventCreate *create = VGPU_REAL(cuEventCreate);
	vgpu_fn_cuEventRecord *record = VGPU_REAL(cuEventRecord);

	if (create == NULL || record == NULL)
		return false;
	if (group->begin == NULL && create(&group->begin, 0) != CUDA_SUCCESS)
		return false;
	if (group->end == NULL && create(&group->end, 0) != CUDA_SUCCESS)
		return false;
	return record(group->begin, handle) == CUDA_SUCCESS;
}

enum vgpu_gate_joined vgpu_gate_join(struct vgpu_process *p, const struct vgpu_gate_key *key, uint64_t now_ns,
				     bool anyway, struct vgpu_gate_group **out)
{
	struct vgpu_gate *gate = vgpu_gate(p);
	struct vgpu_gate_stream *stream;
	struct vgpu_gate_group *group = NULL;
	bool begins, begun;

	lock_gate(gate);
	stream = find_stream(gate, key);
	stream = stream == NULL ? take(gate, key) : stream;
	if (stream != NULL)
		group = choose(stream, anyway);
	begins = group != NULL && group->state == VGPU_GROUP_FREE;
	if (begins) {
		group->state = VGPU_GROUP_BEGINS;
	} else if (group != NULL) {
		stream->stalled |= group->state == VGPU_GROUP_FULL;
		count_launch(stream, group);
	}
	unlock_gate(gate);
	if (stream == NULL)
		return VGPU_NO_PLACE;
	*out = begins ? NULL : group;
	if (!begins && group == NULL)
		return anyway ? VGPU_NO_PLACE : VGPU_JOINS_LATER;
	if (!begins)
		return VGPU_JOINED;
	begun = has_begun(group, key->handle);
	lock_gate(gate);
	group->state = begun ? VGPU_GROUP_OPEN : VGPU_GROUP_FREE;
	group->launches = group->inside = 0;
	group->begun_ns = now_ns;
	if (begun)
		count_launch(stream, group);
	unlock_gate(gate);
	*out = begun ? group : NULL;
	return begun ? VGPU_JOINED : VGPU_NO_EVENT;
}

void vgpu_gate_behind(struct vgpu_process *p, struct vgpu_gate_group *group, CUstream handle)
{
	vgpu_fn_cuEventRecord *record = VGPU_REAL(cuEventRecord);
	struct vgpu_gate *gate = vgpu_gate(p);
	bool recorded = record != NULL && record(group->end, handle) == CUDA_SUCCESS;

	lock_gate(gate);
	/* None is, where the context has ended meanwhile. */
	if (group->inside > 0)
		group->inside--;
	if (!recorded && group->inside == 0)
		group->state = VGPU_GROUP_FREE;
	unlock_gate(gate);
}

/* ---- what it took ---- */

/* False: the GPU has not done it yet. 0: the driver does not say. */
static bool is_done(CUevent begin, CUevent end, uint64_t *busy_ns)
{
	vgpu_fn_cuEventQuery *query = VGPU_REAL(cuEventQuery);
	vgpu_fn_cuEventElapsedTime *elapsed = VGPU_REAL(cuEventElapsedTime);
	CUresult result = query != NULL ? query(end) : CUDA_ERROR_NOT_FOUND;
	float ms = 0;

	*busy_ns = 0;
	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (result == CUDA_SUCCESS && elapsed != NULL && elapsed(&ms, begin, end) == CUDA_SUCCESS && ms > 0)
		*busy_ns = (uint64_t)(ms * 1e6);
	return true;
}

/* With the lock held: since when anything is in flight on the device. */
static uint64_t earliest_ns(const struct vgpu_gate *gate, uint32_t device, uint64_t now_ns)
{
	uint64_t earliest = now_ns;

	for (uint32_t i = 0; i < gate->high; i++) {
		const struct vgpu_gate_stream *stream = &gate->stream[i];

		for (uint32_t g = 0; g < 2 && stream->device == device; g++) {
			if (stream->group[g].state >= VGPU_GROUP_OPEN && stream->group[g].begun_ns < earliest)
				earliest = stream->group[g].begun_ns;
		}
	}
	return earliest;
}

/* With the lock held: whether the driver is to be asked about the group, by this thread alone. */
static bool may_ask(const struct vgpu_gate_stream *stream, const struct vgpu_gate_group *group)
{
	return stream->context != NULL && group->state >= VGPU_GROUP_OPEN && group->inside == 0 &&
	       group->asked == 0;
}

/* True: it is in flight still. */
static bool settle_group(struct vgpu_process *p, struct vgpu_gate_stream *stream,
			 struct vgpu_gate_group *group)
{
	struct vgpu_gate *gate = vgpu_gate(p);
	struct vgpu_gate_group asked;
	uint32_t device;
	uint64_t busy_ns, now;
	bool ask, flies;

	lock_gate(gate);
	ask = may_ask(stream, group);
	flies = group->state != VGPU_GROUP_FREE;
	group->asked |= ask;
	device = stream->device;
	asked = *group;
	unlock_gate(gate);
	if (!ask)
		return flies;
	flies = !is_done(asked.begin, asked.end, &busy_ns);
	now = vgpu_now_ns();
	lock_gate(gate);
	group->asked = 0;
	if (!flies) {
		stream->stalled = 0;
		stream->launch_ns = busy_ns / asked.launches;
		busy_ns = vgpu_bucket_at_most(&gate->device[device].counted_ns,
					      earliest_ns(gate, device, now), now, busy_ns);
		SET(gate->device[device].launch_ns,
		    (3 * gate->device[device].launch_ns + busy_ns / asked.launches) / 4);
		group->state = VGPU_GROUP_FREE;
	}
	unlock_gate(gate);
	if (!flies)
		vgpu_gate_charge(p, device, asked.begun_ns, busy_ns);
	return flies;
}

void vgpu_gate_settle_stream(struct vgpu_process *p, const struct vgpu_gate_key *key)
{
	struct vgpu_gate *gate = vgpu_gate(p);
	struct vgpu_gate_stream *stream;

	lock_gate(gate);
	stream = find_stream(gate, key);
	unlock_gate(gate);
	for (uint32_t g = 0; g < 2 && stream != NULL; g++)
		settle_group(p, stream, &stream->group[g]);
}

bool vgpu_gate_settle_context(struct vgpu_process *p, CUcontext context)
{
	struct vgpu_gate *gate = vgpu_gate(p);
	bool flies = false;

	for (uint32_t i = 0; i < GET(gate->high); i++) {
		struct vgpu_gate_stream *stream = &gate->stream[i];

		for (uint32_t g = 0; g < 2 && GET(stream->context) == context; g++)
			flies |= settle_group(p, stream, &stream->group[g]);
	}
	return flies;
}

void vgpu_gate_forget_context(struct vgpu_process *p, CUcontext context)
{
	struct vgpu_gate *gate = vgpu_gate(p);

	for (uint32_t i = 0; i < GET(gate->high); i++) {
		struct vgpu_gate_stream gone = {0};

		lock_gate(gate);
		if (gate->stream[i].context != NULL &&
		    (context == NULL || gate->stream[i].context == context)) {
			gone = gate->stream[i];
			forget_stream(&gate->stream[i]);
		}
		unlock_gate(gate);
		for (uint32_t g = 0; g < 2; g++) {
			const struct vgpu_gate_group *group = &gone.group[g];

			if (group->state >= VGPU_GROUP_OPEN)
				vgpu_gate_charge(p, gone.device, group->begun_ns,
						 group->launches * GET(gate->device[gone.device].launch_ns));
		}
	}
}
