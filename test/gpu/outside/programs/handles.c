/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library to preload: writes down, into HANDLES_FILE, the handles of the channel groups, channels and
 * subdevices that libcuda makes in a process, with its descriptors; ../handles.go reads them. It changes
 * nothing.
 * Numbers are of the driver's open kernel modules (nv_escape.h, nv-ioctl-numbers.h, nvos.h, classes). */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ESCAPE_TYPE 'F'
#define ESCAPE_ALLOC 0x2B
#define ESCAPE_BY_ADDRESS 211 /* NV_ESC_IOCTL_XFER_CMD: number, size, address */
#define CLASS_GROUP 0xA06C
#define CLASS_SUBDEVICE 0x2080
#define MOST 2048

/* NVOS21_PARAMETERS; NVOS64_PARAMETERS begins like it and has its status later. */
struct alloc {
	uint32_t client, parent, object, class;
	uint64_t params;
	uint32_t rest[6];
};
#define SHORT_ALLOC_BYTES 32
#define LONG_ALLOC_BYTES 48
_Static_assert(sizeof(struct alloc) == LONG_ALLOC_BYTES, "NVOS64_PARAMETERS");

struct by_address {
	uint32_t number, bytes;
	uint64_t address;
};

static struct handle {
	const char *kind;
	int fd;
	uint32_t client, parent, object, engine;
} handles[MOST];
static int known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void write_all(void)
{
	const char *path = getenv("HANDLES_FILE");
	FILE *out = path ? fopen(path, "we") : NULL;

	if (!out)
		return;
	for (int i = 0; i < known; i++)
		fprintf(out, "%s %d %u %u %u %u\n", handles[i].kind, handles[i].fd, handles[i].client,
			handles[i].parent, handles[i].object, handles[i].engine);
	fclose(out);
}

static void add(const char *kind, int fd, const struct alloc *made, uint32_t engine)
{
	pthread_mutex_lock(&lock);
	if (known < MOST)
		handles[known++] =
			(struct handle){kind, fd, made->client, made->parent, made->object, engine};
	/* Channels come last; and of a program's processes those that have none write nothing. */
	if (strcmp(kind, "channel") == 0)
		write_all();
	pthread_mutex_unlock(&lock);
}

static int is_channel(uint32_t class)
{
	/* VOLTA_CHANNEL_GPFIFO_A and on. */
	return (class & 0xff) == 0x6f && class >= 0xc36f && class <= 0xce6f;
}

static void note(int fd, unsigned number, unsigned bytes, const void *argument)
{
	struct alloc made = {0};
	uint32_t engine = 0;

	if (number != ESCAPE_ALLOC || !argument)
		return;
	if (bytes != SHORT_ALLOC_BYTES && bytes != LONG_ALLOC_BYTES)
		return;
	memcpy(&made, argument, bytes);
	if (made.rest[bytes == SHORT_ALLOC_BYTES ? 1 : 4] != 0) /* the status */
		return;
	if (made.class == CLASS_GROUP) {
		if (made.params) /* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS */
			memcpy(&engine, (const char *)(uintptr_t)made.params + 12, sizeof engine);
		add("group", fd, &made, engine);
	} else if (made.class == CLASS_SUBDEVICE) {
		add("subdevice", fd, &made, 0);
	} else if (is_channel(made.class)) {
		add("channel", fd, &made, 0);
	}
}

int ioctl(int fd, unsigned long request, ...)
{
	struct by_address inner;
	va_list arguments;
	void *argument;
	long result;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	result = syscall(SYS_ioctl, fd, request, argument);
	if (_IOC_TYPE(request) != ESCAPE_TYPE || result != 0)
		return (int)result;
	if (_IOC_NR(request) == ESCAPE_BY_ADDRESS && argument) {
		memcpy(&inner, argument, sizeof inner);
		note(fd, inner.number, inner.bytes, (const void *)(uintptr_t)inner.address);
	} else {
		note(fd, _IOC_NR(request), _IOC_SIZE(request), argument);
	}
	return (int)result;
}
