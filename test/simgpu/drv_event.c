/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Events: the time at which all that a stream had to do before will be done. */
#include "drv.h"

#include <stdlib.h>

struct CUevent_st {
	CUevent next;
	CUcontext ctx;
	unsigned flags;
	bool recorded;
	uint64_t deferred, reached; /* records of it that lay behind a wait, and of these: that are done */
	uint64_t when_ns;
};

static CUevent events;

uint64_t drv_event_ns(CUevent event)
{
	return event->deferred != event->reached ? SIM_NEVER_NS : event->recorded ? event->when_ns : 0;
}

uint64_t drv_event_deferred(CUevent event)
{
	return event->deferred;
}

bool drv_event_has_reached(CUevent event, uint64_t number, uint64_t *ns)
{
	*ns = event->recorded ? event->when_ns : 0;
	return event->reached >= number;
}

void drv_event_reached(CUevent event, uint64_t ns)
{
	event->reached++;
	event->when_ns = ns;
}

void drv_events_free_all(CUcontext ctx)
{
	CUevent *at = &events;

	while (*at != NULL) {
		CUevent event = *at;

		if (event->ctx == ctx) {
			*at = event->next;
			drv_deferred_forget(event, NULL);
			free(event);
		} else
			at = &event->next;
	}
}

static CUresult known(CUevent event) /* with the lock held */
{
	for (CUevent e = events; e != NULL; e = e->next)
		if (e == event)
			return CUDA_SUCCESS;
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
	CUresult result;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	result = known(event);
	if (result == CUDA_SUCCESS && !drv_deferred_event(stream, event, &result) &&
	    drv_event_ns(event) > stream->ready_ns)
		stream->ready_ns = event->when_ns;
	return drv_unlock(result);
}

CUresult sim_cuEventCreate(CUevent *out, unsigned int flags)
{
	CUevent event;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (out == NULL || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	event = calloc(1, sizeof(*event));
	if (event == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	drv_asked(SIM_EVENTS_MADE);
	event->ctx = ctx;
	event->flags = flags;
	drv_lock();
	if (drv_fail_injected()) {
		free(event);
		return drv_unlock(CUDA_ERROR_OUT_OF_MEMORY);
	}
	event->next = events;
	events = event;
	*out = event;
	drv_unlock(CUDA_SUCCESS);
	drv_within("cuEventCreate");
	return CUDA_SUCCESS;
}

CUresult sim_cuEventDestroy_v2(CUevent event)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	NEED(drv_ready());
	drv_lock();
	for (CUevent *at = &events; *at != NULL; at = &(*at)->next)
		if (*at == event) {
			*at = event->next;
			drv_deferred_forget(event, NULL);
			free(event);
			result = CUDA_SUCCESS;
			break;
		}
	return drv_unlock(result);
}

CUresult sim_cuEventDestroy(CUevent event)
{
	return sim_cuEventDestroy_v2(event);
}

CUresult sim_cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned int flags)
{
	CUresult result;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	drv_asked(SIM_ASKED_RECORD);
	drv_lock();
	result = known(event);
	if (result == CUDA_SUCCESS && event->ctx != stream->ctx)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && drv_deferred_record(stream, event, &result)) {
		event->recorded = true;
		event->deferred++;
	} else if (result == CUDA_SUCCESS) {
		uint64_t now = sim_now_ns(), ready = drv_stream_ready_ns(stream);

		event->recorded = true;
		event->when_ns = ready > now ? ready : now;
	}
	return drv_unlock(result);
}

CUresult sim_cuEventRecord(CUevent event, CUstream stream)
{
	return sim_cuEventRecordWithFlags(event, stream, 0);
}

CUresult sim_cuEventQuery(CUevent event)
{
	CUresult result;

	NEED(drv_ready());
	NEED(drv_safe());
	drv_lock();
	drv_asked(SIM_ASKED_EVENT);
	result = known(event);
	if (result == CUDA_SUCCESS && drv_event_ns(event) > sim_now_ns())
		result = (CUresult)SIM_CUDA_ERROR_NOT_READY;
	drv_unlock(result);
	if (result == CUDA_SUCCESS)
		drv_within("cuEventQuery"); /* the answer stands, and is old when it comes */
	return result;
}

CUresult sim_cuEventSynchronize(CUevent event)
{
	uint64_t when = 0;
	CUresult result;
	int device = 0;

	NEED(drv_ready());
	drv_lock();
	while ((result = known(event)) == CUDA_SUCCESS && (when = drv_event_ns(event)) == SIM_NEVER_NS)
		drv_sleep_unlocked(SIM_NEVER_NS);
	if (result == CUDA_SUCCESS)
		device = event->ctx->device;
	drv_unlock(result);
	if (when != 0) {
		drv_sleep_until(when);
		drv_pools_trim(device);
	}
	return result;
}

CUresult sim_cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	CUresult result;

	NEED(drv_ready());
	if (ms == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	drv_asked(SIM_ASKED_BETWEEN);
	result = known(start);
	if (result == CUDA_SUCCESS)
		result = known(end);
	if (result == CUDA_SUCCESS && (!start->recorded || !end->recorded ||
				       ((start->flags | end->flags) & SIM_EVENT_DISABLE_TIMING)))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS &&
	    (drv_event_ns(start) > sim_now_ns() || drv_event_ns(end) > sim_now_ns()))
		result = (CUresult)SIM_CUDA_ERROR_NOT_READY;
	if (result == CUDA_SUCCESS)
		*ms = (float)((double)((int64_t)(end->when_ns - start->when_ns)) / 1e6);
	return drv_unlock(result);
}

CUresult sim_cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return sim_cuEventElapsedTime_v2(ms, start, end);
}
