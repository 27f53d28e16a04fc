/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver/visible.h"

#include "base/atomics.h"
#include "base/futex.h"
#include "base/number.h"
#include "driver/own.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAME "CUDA_VISIBLE_DEVICES="
#define NAME_LENGTH (sizeof(NAME) - 1)
/* "…" for each GPU, and a comma. */
#define ENTRY_BYTES (NAME_LENGTH + VGPU_MAX_DEVICES * (VGPU_UUID_BYTES + 1) + 1)

/* The UUIDs of the step's GPUs; how many. */
static int granted_uuids(const char *uuid[static VGPU_MAX_DEVICES])
{
	const struct vgpu_limits *limits = vgpu_pages.limits;
	uint32_t count = __atomic_load_n(&limits->device_count, __ATOMIC_RELAXED);
	int n = 0;

	for (uint32_t i = 0; i < count && i < VGPU_MAX_DEVICES; i++) {
		if (__atomic_load_n(&limits->device[i].step_mem_bytes, __ATOMIC_RELAXED) > 0)
			uuid[n++] = limits->device[i].uuid;
	}
	return n;
}

/* Both: which GPU an entry means, -1 when none. */
static int by_number(const char *entry, int count)
{
	uint64_t n;

	entry += strspn(entry, " \t\n\v\f\r");
	entry += *entry == '+';
	/* The driver too takes no notice of what follows the digits. */
	return vgpu_number_read(&entry, &n) && n < (uint64_t)count ? (int)n : -1;
}

static int by_uuid(const char *entry, size_t length, const char *const *uuid, int count)
{
	int found = -1;

	for (int i = 0; i < count; i++) {
		if (length > VGPU_UUID_BYTES || strncasecmp(uuid[i], entry, length) != 0)
			continue;
		if (found >= 0)
			return -1; /* a prefix of several */
		found = i;
	}
	return found;
}

static char *append_uuid(char *to, const char *uuid, bool comma)
{
	size_t length = strnlen(uuid, VGPU_UUID_BYTES);

	if (comma)
		*to++ = ',';
	memcpy(to, uuid, length);
	to[length] = '\0';
	return to + length;
}

/* The list ends at the first entry that names no GPU, as the driver's does. A GPU that is named twice stays
 * so: the driver then shows none. */
static void translate(const char *value, char entry[static ENTRY_BYTES])
{
	const char *uuid[VGPU_MAX_DEVICES];
	int count = granted_uuids(uuid);
	char *to = entry + NAME_LENGTH;
	bool uuids = value != NULL && strncmp(value, "GPU-", 4) == 0;

	memcpy(entry, NAME, sizeof(NAME));
	for (int i = 0; i < count && value == NULL; i++)
		to = append_uuid(to, uuid[i], i > 0);
	for (int i = 0; value != NULL && *value != '\0' && i < VGPU_MAX_DEVICES; i++) {
		size_t length = strcspn(value, ",");
		bool is_uuid = strncmp(value, "GPU-", 4) == 0;
		int n = is_uuid != uuids ? -1
			: uuids		 ? by_uuid(value, length, uuid, count)
					 : by_number(value, count);

		if (n < 0)
			break;
		to = append_uuid(to, uuid[n], i > 0);
		value += length;
		value += *value == ',';
	}
}

/* Where the table of variables has this one, or this very entry; NULL: it has not. */
static char **find_variable(const char *entry)
{
	for (char **at = environ; at != NULL && *at != NULL; at++) {
		if (entry == NULL ? strncmp(*at, NAME, NAME_LENGTH) == 0 : *at == entry)
			return at;
	}
	return NULL;
}

static void *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* The C library's setenv may free the table of variables while another thread reads it. Here a pointer is
 * exchanged, in the table or for a new table, and nothing is ever freed. */
static bool add_variable(char *entry)
{
	char **table = environ, **longer;
	size_t variables = 0;

	while (table != NULL && table[variables] != NULL)
		variables++;
	longer = map((variables + 2) * sizeof(char *));
	if (longer == NULL)
		return false;
	if (variables > 0)
		memcpy(longer, table, variables * sizeof(char *));
	longer[variables] = entry;
	__atomic_store_n(&environ, longer, __ATOMIC_RELEASE);
	return true;
}

/* As unsetenv does it. */
static void take_away(char **at)
{
	for (; *at != NULL; at++)
		__atomic_store_n(at, at[1], __ATOMIC_RELEASE);
}

/* The entry in memory that stays, the one of last time if it is the same. */
static char *keep_entry(struct vgpu_visible *visible, const char *text)
{
	if (visible->kept == NULL || strcmp(visible->kept, text) != 0)
		visible->kept = map(ENTRY_BYTES);
	return visible->kept == NULL ? NULL : strcpy(visible->kept, text);
}

/* NULL: the driver can be left with what is there. */
static char *show_to_driver(struct vgpu_visible *visible)
{
	char **at = find_variable(NULL);
	const char *value = at == NULL ? NULL : *at + NAME_LENGTH;
	char text[ENTRY_BYTES], *entry;

	if (value != NULL && strncmp(value, "MIG-", 4) == 0)
		return NULL;
	translate(value, text);
	if (value != NULL && strcmp(value, text + NAME_LENGTH) == 0)
		return NULL;
	entry = keep_entry(visible, text);
	visible->before = at == NULL ? NULL : *at;
	if (entry == NULL || (at == NULL && !add_variable(entry)))
		return NULL;
	if (at != NULL)
		__atomic_store_n(at, entry, __ATOMIC_RELEASE);
	return entry;
}

/* Unless the program has set another one meanwhile. */
static void show_to_program(const struct vgpu_visible *visible)
{
	char **at = find_variable(visible->shown);

	if (at != NULL && visible->before != NULL)
		__atomic_store_n(at, visible->before, __ATOMIC_RELEASE);
	else if (at != NULL)
		take_away(at);
}

bool vgpu_visible_begin(struct vgpu_process *p)
{
	struct vgpu_visible *visible = &vgpu_driver(p)->visible;

	if (GET(visible->started))
		return false;
	vgpu_brief_lock(&visible->lock, VGPU_RANK_VISIBLE);
	if (visible->starting++ == 0)
		visible->shown = show_to_driver(visible);
	vgpu_brief_unlock(&visible->lock);
	return true;
}

void vgpu_visible_end(struct vgpu_process *p, bool started)
{
	struct vgpu_visible *visible = &vgpu_driver(p)->visible;

	vgpu_brief_lock(&visible->lock, VGPU_RANK_VISIBLE);
	if (--visible->starting == 0 && visible->shown != NULL)
		show_to_program(visible);
	if (started)
		SET(visible->started, 1);
	vgpu_brief_unlock(&visible->lock);
}
