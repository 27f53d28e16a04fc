/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver/contexts.h"

#include "base/futex.h"
#include "driver/own.h"
#include "tuning.h"

/* The context's place, NULL when it has none; a free one for no context. With the mutex held. */
static struct vgpu_context *place_of_context(struct vgpu_process *p, CUcontext context)
{
	struct vgpu_driver *driver = vgpu_driver(p);

	for (int i = 0; i < VGPU_NOTED_CONTEXTS; i++) {
		if (driver->context[i].handle == context)
			return &driver->context[i];
	}
	return NULL;
}

bool vgpu_contexts_note(struct vgpu_process *p, CUcontext context, CUdevice ordinal, uint32_t device,
			bool primary)
{
	struct vgpu_context *place = NULL;

	vgpu_mutex_lock(&vgpu_driver(p)->context_mutex, VGPU_RANK_CONTEXTS);
	if (place_of_context(p, context) == NULL)
		place = place_of_context(p, NULL);
	if (place != NULL)
		*place = (struct vgpu_context){
			.handle = context, .ordinal = ordinal, .device = device, .primary = primary};
	vgpu_mutex_unlock(&vgpu_driver(p)->context_mutex);
	return place != NULL;
}

void vgpu_contexts_count_made(struct vgpu_process *p, CUcontext context)
{
	CUdevice ordinal;

	if (!vgpu_contexts_ordinal(p, context, &ordinal))
		__atomic_add_fetch(&p->contexts_made, 1, __ATOMIC_RELAXED);
}

bool vgpu_contexts_take(struct vgpu_process *p, CUcontext context, struct vgpu_context *out)
{
	struct vgpu_context *place;

	vgpu_mutex_lock(&vgpu_driver(p)->context_mutex, VGPU_RANK_CONTEXTS);
	place = context != NULL ? place_of_context(p, context) : NULL;
	if (place != NULL) {
		*out = *place;
		*place = (struct vgpu_context){0};
	}
	vgpu_mutex_unlock(&vgpu_driver(p)->context_mutex);
	return place != NULL;
}

void vgpu_contexts_put_back(struct vgpu_process *p, const struct vgpu_context *noted)
{
	struct vgpu_context *place;

	vgpu_mutex_lock(&vgpu_driver(p)->context_mutex, VGPU_RANK_CONTEXTS);
	place = place_of_context(p, NULL);
	if (place != NULL)
		*place = *noted;
	vgpu_mutex_unlock(&vgpu_driver(p)->context_mutex);
}

bool vgpu_contexts_exist(struct vgpu_process *p, uint32_t device)
{
	bool found = false;

	vgpu_mutex_lock(&vgpu_driver(p)->context_mutex, VGPU_RANK_CONTEXTS);
	for (int i = 0; i < VGPU_NOTED_CONTEXTS && !found; i++)
		found = vgpu_driver(p)->context[i].handle != NULL &&
			vgpu_driver(p)->context[i].device == device;
	vgpu_mutex_unlock(&vgpu_driver(p)->context_mutex);
	return found;
}

bool vgpu_contexts_ordinal(struct vgpu_process *p, CUcontext context, CUdevice *ordinal)
{
	const struct vgpu_context *place;

	vgpu_mutex_lock(&vgpu_driver(p)->context_mutex, VGPU_RANK_CONTEXTS);
	place = context != NULL ? place_of_context(p, context) : NULL;
	if (place != NULL)
		*ordinal = place->ordinal;
	vgpu_mutex_unlock(&vgpu_driver(p)->context_mutex);
	return place != NULL;
}

int vgpu_contexts_promise_changed(struct vgpu_process *p, CUcontext context, uint64_t more, uint64_t less)
{
	struct vgpu_context *place;
	int device = -1;

	vgpu_mutex_lock(&vgpu_driver(p)->context_mutex, VGPU_RANK_CONTEXTS);
	place = context != NULL ? place_of_context(p, context) : NULL;
	if (place != NULL) {
		device = (int)place->device;
		place->promised_bytes += more;
		place->promised_bytes -= place->promised_bytes < less ? place->promised_bytes : less;
	}
	vgpu_mutex_unlock(&vgpu_driver(p)->context_mutex);
	return device;
}

CUcontext vgpu_contexts_primary(struct vgpu_process *p, CUdevice ordinal)
{
	CUcontext context = NULL;

	vgpu_mutex_lock(&vgpu_driver(p)->context_mutex, VGPU_RANK_CONTEXTS);
	for (int i = 0; i < VGPU_NOTED_CONTEXTS && context == NULL; i++) {
		if (vgpu_driver(p)->context[i].primary && vgpu_driver(p)->context[i].ordinal == ordinal)
			context = vgpu_driver(p)->context[i].handle;
	}
	vgpu_mutex_unlock(&vgpu_driver(p)->context_mutex);
	return context;
}
