/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the real libcuda asks of the driver to have a context: a client, a device and a subdevice for each
 * GPU, a channel group that computes and one that copies. By libc's ioctl, as the real one. */
#define _GNU_SOURCE
#include "drv_control.h"

#include "control.h"
#include "escapes.h"

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define SLICE_US 2048
#define MOST_ENDS (1u << 16) /* that are kept */
#define LOOK_AGAIN_NS 1000000

static int device_fd = -1;
static uint32_t client, next_name = 0x5c000000;
static uint32_t devices[SIM_MAX_DEVICES]; /* by ordinal */

static struct {
	uint64_t ticket, ns;
} ends[MOST_ENDS];
static bool waits; /* there is a thread */
static bool lost;  /* the device does not answer any more: nothing waits for it */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

bool drv_controlled(void)
{
	return device_fd >= 0;
}

/* 0: refused. The driver takes the name that is given. */
static uint32_t make(uint32_t parent, uint32_t class, void *params, uint32_t bytes)
{
	struct escape_alloc arg = {.client = client,
			    .parent = parent,
			    .object = class == CLASS_CLIENT ? 0 : ++next_name,
			    .class = class,
			    .params = (uintptr_t)params,
			    .params_bytes = bytes};

	if (ioctl(device_fd, ESCAPE_ALLOC, &arg) != 0 || arg.status != 0)
		return 0;
	return arg.object;
}

static uint32_t make_device(int ordinal)
{
	struct sim_where where = {.device = (uint32_t)drv.device[ordinal]};
	uint32_t params[DEVICE_PARAMS] = {0}, subdevice = 0, device;

	if (ioctl(device_fd, SIM_WHERE, &where) != 0)
		return 0;
	params[0] = where.instance;
	device = make(client, CLASS_DEVICE, params, sizeof(params));
	if (device == 0 || make(device, CLASS_SUBDEVICE, &subdevice, sizeof(subdevice)) == 0)
		return 0;
	return device;
}

CUresult drv_control_start(void)
{
	device_fd = sim_control_open();
	if (device_fd == -1)
		return CUDA_SUCCESS;
	if (device_fd >= 0)
		client = make(0, CLASS_CLIENT, NULL, 0);
	if (client == 0)
		return (CUresult)SIM_CUDA_ERROR_OPERATING_SYSTEM;
	for (int i = 0; i < drv.count; i++)
		if ((devices[i] = make_device(i)) == 0)
			return (CUresult)SIM_CUDA_ERROR_OPERATING_SYSTEM;
	return CUDA_SUCCESS;
}

static void drop(uint32_t object)
{
	struct escape_free arg = {.client = client, .object = object};

	if (object != 0)
		ioctl(device_fd, ESCAPE_FREE, &arg);
}

static uint32_t make_group(uint32_t device, uint32_t engine, uint32_t *channel, int count)
{
	uint32_t params[GROUP_PARAMS] = {0, 0, 0, engine};
	uint32_t group = make(device, CLASS_GROUP, params, sizeof(params));

	for (int i = 0; i < count && group != 0; i++)
		if ((channel[i] = make(group, CLASS_CHANNEL, NULL, 0)) == 0) {
			drop(group);
			group = 0;
		}
	return group;
}

CUresult drv_control_context(CUcontext ctx)
{
	uint32_t copies[2], device = devices[ctx->ordinal];
	uint64_t slice = SLICE_US;
	struct escape_control arg = {.client = client,
			      .command = CALL_SET_SLICE,
			      .params = (uintptr_t)&slice,
			      .params_bytes = sizeof(slice)};

	if (!drv_controlled() || ctx->derived_from != NULL)
		return CUDA_SUCCESS;
	ctx->group = make_group(device, ENGINE_COMPUTES, ctx->channel, SIM_CHANNELS);
	ctx->copies = make_group(device, ENGINE_COPIES, copies, 2);
	if (ctx->group == 0 || ctx->copies == 0) {
		drv_control_context_end(ctx);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	arg.object = ctx->group;
	ioctl(device_fd, ESCAPE_CONTROL, &arg); /* refused: it has the driver's own slice */
	return CUDA_SUCCESS;
}

void drv_control_context_end(CUcontext ctx)
{
	drop(ctx->group);
	drop(ctx->copies);
	ctx->group = ctx->copies = 0;
}

static void *wait_for_ends(void *nothing)
{
	struct sim_ends got;

	(void)nothing;
	while (!lost) {
		int rc = ioctl(device_fd, SIM_WAIT, &got);

		if (rc != 0 && errno == EINTR)
			continue;
		drv_lock();
		lost = rc != 0;
		for (uint32_t i = 0; i < got.count && !lost; i++) {
			ends[got.end[i].ticket % MOST_ENDS].ns = got.end[i].ns;
			ends[got.end[i].ticket % MOST_ENDS].ticket = got.end[i].ticket;
		}
		drv_deferred_settle();
		pthread_cond_broadcast(&ended);
		drv_unlock(CUDA_SUCCESS);
	}
	return NULL;
}

/* The program's signals are its own threads'. */
static bool somebody_waits(void)
{
	sigset_t all, before;
	pthread_t thread;

	if (waits)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	waits = pthread_create(&thread, NULL, wait_for_ends, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (waits)
		pthread_detach(thread);
	return waits;
}

uint64_t drv_control_submit(CUstream stream, uint64_t ns)
{
	CUcontext ctx = stream->ctx->derived_from != NULL ? stream->ctx->derived_from : stream->ctx;
	struct sim_submit arg = {.client = client, .ns = ns};

	arg.channel = ctx->channel[stream == &ctx->legacy ? 0 : ((uintptr_t)stream >> 6) % SIM_CHANNELS];
	if (!somebody_waits() || ioctl(device_fd, SIM_SUBMIT, &arg) != 0)
		return 0;
	sim_time_put_in(ctx->device, ns);
	return arg.ticket;
}

bool drv_control_ended(uint64_t ticket, uint64_t *ns)
{
	*ns = ends[ticket % MOST_ENDS].ns;
	if (lost)
		*ns = sim_now_ns();
	return lost || ends[ticket % MOST_ENDS].ticket == ticket;
}

void drv_control_wait(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += LOOK_AGAIN_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&ended, &drv.lock, &until);
}
