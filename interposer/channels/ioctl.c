/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * ioctl, by which libcuda has the driver make what it schedules. All calls go on as they are; of those of the
 * driver that make or free a handle it is noted that they did, where the process has limits. Numbers and
 * structures are those of the driver's open kernel modules (nv_escape.h, nv-ioctl-numbers.h, nvos.h,
 * cl0080.h, alloc_channel.h). */
#include "base/atomics.h"
#include "base/libc.h"
#include "base/sys.h"
#include "channels/channels.h"
#include "channels/ioctl.h"

#include <errno.h>
#include <linux/ioctl.h>
#include <string.h>

#define DRIVERS_TYPE 'F'
#define ESCAPE_FREE 0x29u
#define ESCAPE_ALLOC 0x2Bu
#define ESCAPE_BY_ADDRESS 211u /* NV_ESC_IOCTL_XFER_CMD */

#define CLASS_DEVICE 0x80u
#define CLASS_SUBDEVICE 0x2080u
#define CLASS_GROUP 0xA06Cu
/* Channels of all generations: VOLTA_CHANNEL_GPFIFO_A is 0xC36F. */
#define CLASS_CHANNEL 0x6Fu
#define FIRST_CHANNEL 0xA06Fu
#define LAST_CHANNEL 0xFF6Fu

struct by_address { /* nv_ioctl_xfer_t */
	uint32_t number, bytes;
	uint64_t address;
};

struct freed { /* NVOS00_PARAMETERS */
	uint32_t client, parent, object, status;
};

/* NVOS21_PARAMETERS, and NVOS64_PARAMETERS, which begins like it. */
struct made {
	uint32_t client, parent, object, class;
	uint64_t params;
};

struct made_short {
	struct made made;
	uint32_t params_bytes, status;
};

struct made_long {
	struct made made;
	uint64_t rights;
	uint32_t params_bytes, flags, status, pad;
};

_Static_assert(sizeof(struct made_short) == 32 && sizeof(struct made_long) == 48, "the driver's structures");

/* In NV0080_ALLOC_PARAMETERS and NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS. */
#define INSTANCE_AT 0u
#define ENGINE_AT 12u

static uint32_t what_is_made(uint32_t class)
{
	if (class == CLASS_DEVICE)
		return VGPU_HANDLE_DEVICE;
	if (class == CLASS_SUBDEVICE)
		return VGPU_HANDLE_SUBDEVICE;
	if (class == CLASS_GROUP)
		return VGPU_HANDLE_GROUP;
	if ((class & 0xFF) == CLASS_CHANNEL && class >= FIRST_CHANNEL && class <= LAST_CHANNEL)
		return VGPU_HANDLE_CHANNEL;
	return 0;
}

/* The driver has read them there. */
static uint32_t parameter(const struct made *made, uint32_t bytes, uint32_t at)
{
	uint32_t value = 0;

	if (made->params != 0 && (bytes == 0 || bytes >= at + sizeof(value)))
		memcpy(&value, (const char *)(uintptr_t)made->params + at, sizeof(value));
	return value;
}

static void note_made(struct vgpu_process *p, int fd, const struct made *made, uint32_t params_bytes)
{
	struct vgpu_handle_event event = {
		.what = what_is_made(made->class),
		.fd = fd,
		.client = made->client,
		.parent = made->parent,
		.object = made->object,
	};

	if (event.what == 0)
		return;
	if (event.what == VGPU_HANDLE_DEVICE)
		event.value = parameter(made, params_bytes, INSTANCE_AT);
	else if (event.what == VGPU_HANDLE_GROUP)
		event.value = parameter(made, params_bytes, ENGINE_AT);
	vgpu_channels_note(p, &event);
}

static void note_freed(struct vgpu_process *p, const struct freed *freed)
{
	struct vgpu_handle_event event = {
		.what = VGPU_HANDLE_FREE,
		.client = freed->client,
		.parent = freed->parent,
		.object = freed->object,
	};

	vgpu_channels_note(p, &event);
}

static void note_call(struct vgpu_process *p, int fd, uint32_t number, uint32_t bytes, const void *argument)
{
	struct made_short brief;
	struct made_long full;
	struct freed freed;

	if (number == ESCAPE_FREE && bytes == sizeof(freed)) {
		memcpy(&freed, argument, sizeof(freed));
		if (freed.status == 0)
			note_freed(p, &freed);
	} else if (number == ESCAPE_ALLOC && bytes == sizeof(brief)) {
		memcpy(&brief, argument, sizeof(brief));
		if (brief.status == 0)
			note_made(p, fd, &brief.made, brief.params_bytes);
	} else if (number == ESCAPE_ALLOC && bytes == sizeof(full)) {
		memcpy(&full, argument, sizeof(full));
		if (full.status == 0)
			note_made(p, fd, &full.made, full.params_bytes);
	}
}

/* Whether the process has limits, or is about to have them: CUDA does not begin before. */
static bool is_limited(const struct vgpu_process *p)
{
	uint32_t stage = p == NULL ? (uint32_t)VGPU_NEW : __atomic_load_n(&p->stage, __ATOMIC_ACQUIRE);

	return stage == VGPU_BUSY || stage == VGPU_ATTACHED;
}

typedef int ioctl_function(int fd, unsigned long request, void *argument);

static __attribute__((noinline)) int noted(ioctl_function *behind, int fd, unsigned long request,
					   void *argument)
{
	int result = behind(fd, request, argument);
	struct vgpu_process *p = __atomic_load_n(&vgpu_this_process, __ATOMIC_ACQUIRE);
	struct by_address inner;
	int said = errno;

	if (result != 0 || argument == NULL || !is_limited(p))
		return result;
	if (_IOC_NR(request) != ESCAPE_BY_ADDRESS) {
		note_call(p, fd, _IOC_NR(request), _IOC_SIZE(request), argument);
	} else if (_IOC_SIZE(request) == sizeof(inner)) {
		memcpy(&inner, argument, sizeof(inner));
		if (inner.address != 0)
			note_call(p, fd, inner.number, inner.bytes, (const void *)(uintptr_t)inner.address);
	}
	errno = said;
	return result;
}

static int by_the_kernel(int fd, unsigned long request, void *argument)
{
	return (int)syscall(SYS_ioctl, fd, request, argument);
}

static ioctl_function *behind_us;

static __attribute__((noinline)) ioctl_function *find_next_ioctl(void)
{
	ioctl_function *found = (ioctl_function *)vgpu_libc_behind("ioctl");

	found = found != NULL ? found : by_the_kernel;
	SET(behind_us, found);
	return found;
}

static ioctl_function *behind(void)
{
	ioctl_function *known = GET(behind_us);

	return __builtin_expect(known != NULL, 1) ? known : find_next_ioctl();
}

/* Of a call that came by the driver's own place, and goes on to somebody who may call the name. */
static __thread char is_noted;

/* With its third argument by name: it is passed as that of a function with any number of them, and need not
 * be looked for. */
int vgpu_ioctl(int fd, unsigned long request, void *argument) __asm__("ioctl");

__attribute__((visibility("default"))) int vgpu_ioctl(int fd, unsigned long request, void *argument)
{
	if (__builtin_expect(_IOC_TYPE(request) != DRIVERS_TYPE || is_noted, 1))
		return behind()(fd, request, argument);
	return noted(behind(), fd, request, argument);
}

/* By the name, another one may be found here as well. */
extern __typeof__(vgpu_ioctl) own_ioctl __attribute__((alias("ioctl"), visibility("hidden")));

static ioctl_function *in_drivers_place;

static int go_on(int fd, unsigned long request, void *argument)
{
	ioctl_function *next = GET(in_drivers_place);
	char was = is_noted;
	int result;

	is_noted = 1;
	result = (next != NULL ? next : behind())(fd, request, argument);
	is_noted = was;
	return result;
}

static int from_driver(int fd, unsigned long request, void *argument)
{
	return _IOC_TYPE(request) == DRIVERS_TYPE ? noted(go_on, fd, request, argument)
						  : go_on(fd, request, argument);
}

bool vgpu_ioctl_is_ours(const void *address)
{
	return address == (const void *)own_ioctl || address == (const void *)from_driver;
}

void *vgpu_ioctl_in_place_of(void *before)
{
	ioctl_function *none = NULL;

	if (!vgpu_ioctl_is_ours(before))
		__atomic_compare_exchange_n(&in_drivers_place, &none, (ioctl_function *)before, 0,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	return (void *)from_driver;
}
