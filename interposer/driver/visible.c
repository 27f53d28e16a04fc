/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver/visible.h"

#include "base/number.h"
#include "process/process.h"

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
static int granted(const char *uuid[static VGPU_MAX_DEVICES])
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

static char *append(char *to, const char *uuid, bool comma)
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
	int count = granted(uuid);
	char *to = entry + NAME_LENGTH;
	bool uuids = value != NULL && strncmp(value, "GPU-", 4) == 0;

	memcpy(entry, NAME, sizeof(NAME));
	for (int i = 0; i < count && value == NULL; i++)
		to = append(to, uuid[i], i > 0);
	for (int i = 0; value != NULL && *value != '\0' && i < VGPU_MAX_DEVICES; i++) {
		size_t length = strcspn(value, ",");
		bool is_uuid = strncmp(value, "GPU-", 4) == 0;
		int n = is_uuid != uuids ? -1
			: uuids		 ? by_uuid(value, length, uuid, count)
					 : by_number(value, count);

		if (n < 0)
			break;
		to = append(to, uuid[n], i > 0);
		value += length;
		value += *value == ',';
	}
}

/* The C library's setenv may free the table of variables while another thread reads it. Here a pointer is
 * exchanged, in the table or for a new table, and nothing is ever freed. */
static void publish(const char *entry)
{
	char **table = environ;
	size_t variables = 0;
	char *memory;

	while (table != NULL && table[variables] != NULL && strncmp(table[variables], NAME, NAME_LENGTH) != 0)
		variables++;
	memory = mmap(NULL, ENTRY_BYTES + (variables + 2) * sizeof(char *), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return;
	if (table != NULL && table[variables] != NULL) {
		strcpy(memory, entry);
		__atomic_store_n(&table[variables], memory, __ATOMIC_RELEASE);
		return;
	}
	strcpy(memory + (variables + 2) * sizeof(char *), entry);
	memcpy(memory, table, variables * sizeof(char *));
	((char **)memory)[variables] = memory + (variables + 2) * sizeof(char *);
	__atomic_store_n(&environ, (char **)memory, __ATOMIC_RELEASE);
}

void vgpu_visible_translate(void)
{
	const char *value = getenv("CUDA_VISIBLE_DEVICES");
	char entry[ENTRY_BYTES];

	if (value != NULL && strncmp(value, "MIG-", 4) == 0)
		return;
	translate(value, entry);
	if (value == NULL || strcmp(value, entry + NAME_LENGTH) != 0)
		publish(entry);
}
