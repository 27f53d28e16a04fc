/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "sim.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMED_IN "/etc/simgpu"

/* 0: nobody names one. A driver that stands behind a guard is not where it was (guard/). */
static int named_dir(char *dir, size_t size)
{
	int fd = open(NAMED_IN, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, dir, size - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return 0;
	dir[n] = '\0';
	dir[strcspn(dir, "\n")] = '\0';
	return (int)strlen(dir);
}

/* $SIMGPU_DIR, else the folder that /etc/simgpu names, else simgpu.d beside this library: so it is found
 * under env -i. */
static int find_dir(char *dir, size_t size)
{
	const char *env = secure_getenv("SIMGPU_DIR");
	const char *slash;
	Dl_info info;
	int n;

	if (env != NULL && env[0] != '\0') {
		n = snprintf(dir, size, "%s", env);
	} else if ((n = named_dir(dir, size)) == 0) {
		char *real;

		if (dladdr((void *)find_dir, &info) == 0 || info.dli_fname == NULL)
			return -ENOENT;
		real = realpath(info.dli_fname, NULL);
		if (real == NULL)
			return -errno;
		slash = strrchr(real, '/');
		n = snprintf(dir, size, "%.*s/simgpu.d", (int)(slash - real), real);
		free(real);
		if (mkdir(dir, 0777) == 0)
			chmod(dir, 01777); /* every user of the node writes the state file */
	}
	return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

/* The same GPUs at every start, other ones for another seed; the first digits differ. */
static void make_uuid(struct sim_device_conf *device, uint64_t seed, int index)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + (uint64_t)index + 1;

	for (int i = 0; i < 16; i++) {
		uint64_t z = (x += 0x9e3779b97f4a7c15ull);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
		device->uuid_raw[i] = (uint8_t)(z ^ (z >> 31));
	}
}

static void format_uuid(struct sim_device_conf *device)
{
	char *to = device->uuid + sprintf(device->uuid, "GPU-");

	for (int i = 0; i < 16; i++)
		to += sprintf(to, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			      device->uuid_raw[i]);
}

static bool parse_uuid(struct sim_device_conf *device, const char *text)
{
	uint8_t raw[16];
	int nibbles = 0;

	if (strncmp(text, "GPU-", 4) != 0)
		return false;
	for (text += 4; *text != '\0'; text++) {
		char c = (char)tolower((unsigned char)*text);

		if (c == '-')
			continue;
		if (!isxdigit((unsigned char)c) || nibbles == 32)
			return false;
		raw[nibbles / 2] = (uint8_t)((nibbles % 2 ? raw[nibbles / 2] << 4 : 0) |
					     (isdigit((unsigned char)c) ? c - '0' : c - 'a' + 10));
		nibbles++;
	}
	if (nibbles != 32)
		return false;
	memcpy(device->uuid_raw, raw, sizeof(raw));
	return true;
}

static bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*value = strtoull(text, &end, 0);
	return errno == 0 && *end == '\0' && *value >= min && *value <= max;
}

static bool set_text(char *to, size_t size, const char *value)
{
	return value[0] != '\0' && (size_t)snprintf(to, size, "%s", value) < size;
}

static bool set_device(struct sim_device_conf *device, const char *key, const char *value)
{
	uint64_t n;

	if (strcmp(key, "name") == 0)
		return set_text(device->name, sizeof(device->name), value);
	if (strcmp(key, "uuid") == 0)
		return parse_uuid(device, value);
	if (strcmp(key, "cc") == 0) /* compute capability: 9.0 */
		return sscanf(value, "%2d.%1d", &device->cc_major, &device->cc_minor) == 2;
	if (strcmp(key, "mem_mib") == 0 && parse_number(value, 64, 16u << 20, &n))
		device->mem_bytes = n * SIM_MIB;
	else if (strcmp(key, "reserved_mib") == 0 && parse_number(value, 0, 1u << 20, &n))
		device->reserved_bytes = n * SIM_MIB;
	else if (strcmp(key, "context_mib") == 0 && parse_number(value, 0, 1u << 20, &n))
		device->context_bytes = n * SIM_MIB;
	else if (strcmp(key, "minor") == 0 && parse_number(value, 0, 255, &n))
		device->minor = (int)n;
	else if (strcmp(key, "pci_bus") == 0 && parse_number(value, 0, 255, &n))
		device->pci_bus = (unsigned)n;
	else if (strcmp(key, "sm_count") == 0 && parse_number(value, 1, 1024, &n))
		device->sm_count = (int)n;
	else if (strcmp(key, "speed") == 0 && parse_number(value, 0, 1000000, &n))
		device->speed = (int)n;
	else if (strcmp(key, "lost") == 0 && parse_number(value, 0, 1, &n))
		device->lost = n != 0;
	else if (strcmp(key, "recovery") == 0 && parse_number(value, 0, 99, &n))
		device->recovery = (unsigned)n;
	else
		return false;
	return true;
}

/* The numbers that any value up to a bound may be given. */
static const struct {
	const char *key;
	size_t offset; /* of an unsigned in the configuration */
	uint64_t most;
} amounts[] = {
#define AMOUNT(field, most)                                    \
	{                                                      \
#field, offsetof(struct sim_conf, field), most \
	}
	AMOUNT(context_us, 100000000),
	AMOUNT(pool_more_mib, 100000),
#undef AMOUNT
};

static bool set_amount(struct sim_conf *conf, const char *key, const char *value)
{
	uint64_t n;

	for (size_t i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++)
		if (strcmp(key, amounts[i].key) == 0 && parse_number(value, 0, amounts[i].most, &n)) {
			*(unsigned *)((char *)conf + amounts[i].offset) = (unsigned)n;
			return true;
		}
	return false;
}

static bool set_key(struct sim_conf *conf, const char *key, const char *value)
{
	uint64_t n;
	int index, used = 0;

	if (sscanf(key, "device%2d.%n", &index, &used) == 1 && used > 0)
		return index >= 0 && index < SIM_MAX_DEVICES &&
		       set_device(&conf->device[index], key + used, value);
	if (strcmp(key, "driver") == 0)
		return set_text(conf->driver, sizeof(conf->driver), value);
	if (strcmp(key, "devices") == 0 && parse_number(value, 0, SIM_MAX_DEVICES, &n))
		conf->device_count = (int)n;
	else if (strcmp(key, "cuda_version") == 0 && parse_number(value, 2000, 99999, &n))
		conf->cuda_version = (int)n;
	else if (strcmp(key, "pool_silent") == 0 && parse_number(value, 0, 1, &n))
		conf->pool_silent = n != 0;
	else if (strcmp(key, "straddle") == 0 && parse_number(value, 0, 1, &n))
		conf->straddle = n != 0;
	else if (strcmp(key, "pitch_bytes") == 0 && parse_number(value, 1, 4096, &n))
		conf->pitch_bytes = (unsigned)n;
	else if (strcmp(key, "usage_by_process") == 0 && parse_number(value, 0, 2, &n))
		conf->no_usage_by_process = n == 0, conf->only_samples_by_process = n == 2;
	else if (strcmp(key, "mig_attributes") == 0 && parse_number(value, 0, 1, &n))
		conf->mig_attributes = n != 0;
	else if (strcmp(key, "memory_limits") == 0 && parse_number(value, 0, 1, &n))
		conf->memory_limits = n != 0;
	else if (strcmp(key, "control") == 0) /* the control device's (control/) */
		return strcmp(value, "full") == 0 || strcmp(value, "refuse") == 0 ||
		       strcmp(value, "old") == 0;
	else if (strcmp(key, "sessions") == 0 && parse_number(value, 0, SIM_SESSIONS_COUNTED, &n))
		conf->sessions = (int)n;
	else if (strcmp(key, "seed") == 0 && parse_number(value, 0, UINT64_MAX, &n))
		for (int i = 0; i < SIM_MAX_DEVICES; i++)
			make_uuid(&conf->device[i], conf->seed = n, i);
	else if (strcmp(key, "name") == 0 || strcmp(key, "mem_mib") == 0 || strcmp(key, "context_mib") == 0 ||
		 strcmp(key, "reserved_mib") == 0 || strcmp(key, "sm_count") == 0 || strcmp(key, "cc") == 0) {
		for (int i = 0; i < SIM_MAX_DEVICES; i++) /* for all that no later line changes */
			if (!set_device(&conf->device[i], key, value))
				return false;
	} else
		return set_amount(conf, key, value);
	return true;
}

static void defaults(struct sim_conf *conf)
{
	conf->device_count = 2;
	conf->cuda_version = 13000;
	conf->pitch_bytes = 512;
	snprintf(conf->driver, sizeof(conf->driver), "580.159");
	for (int i = 0; i < SIM_MAX_DEVICES; i++) {
		struct sim_device_conf *device = &conf->device[i];

		*device = (struct sim_device_conf){.mem_bytes = 143771 * SIM_MIB,
						   .context_bytes = 518 * SIM_MIB,
						   .minor = i,
						   .pci_bus = 0x10 + 0x0f * (unsigned)i,
						   .sm_count = 132,
						   .cc_major = 9};
		snprintf(device->name, sizeof(device->name), "NVIDIA H200");
		make_uuid(device, 0, i);
	}
}

int sim_conf_load(struct sim_conf *conf)
{
	char path[PATH_MAX], line[512];
	int rc, number = 0;
	FILE *file;

	memset(conf, 0, sizeof(*conf));
	defaults(conf);
	rc = find_dir(conf->dir, sizeof(conf->dir));
	if (rc != 0)
		return rc;
	snprintf(path, sizeof(path), "%s/simgpu.conf", conf->dir);
	file = fopen(path, "re");
	if (file == NULL && errno != ENOENT) {
		rc = -errno;
		fprintf(stderr, "simgpu: %s: %s\n", path, strerror(errno));
		return rc;
	}
	while (file != NULL && rc == 0 && fgets(line, sizeof(line), file) != NULL) {
		char *key = line + strspn(line, " \t"), *value = strchr(key, '=');

		number++;
		key[strcspn(key, "\r\n")] = '\0';
		if (key[0] == '\0' || key[0] == '#')
			continue;
		if (value != NULL)
			*value++ = '\0';
		if (value == NULL || !set_key(conf, key, value)) {
			fprintf(stderr, "simgpu: %s:%d: cannot use \"%s%s%s\"\n", path, number, key,
				value != NULL ? "=" : "", value != NULL ? value : "");
			rc = -EINVAL;
		}
	}
	if (file != NULL)
		fclose(file);
	for (int i = 0; i < conf->device_count; i++) {
		format_uuid(&conf->device[i]);
		if (conf->device[i].reserved_bytes + SIM_GRANULE_BYTES > conf->device[i].mem_bytes)
			rc = -EINVAL;
	}
	return rc;
}

void sim_conf_probe_nodes(struct sim_conf *conf)
{
	char path[PATH_MAX];

	for (int i = 0; i < conf->device_count; i++) {
		struct stat st;
		int fd;

		snprintf(path, sizeof(path), "%s/nvidia%d", conf->dir, conf->device[i].minor);
		conf->device[i].hidden = false;
		if (stat(path, &st) != 0)
			continue;
		fd = open(path, O_RDWR | O_CLOEXEC);
		conf->device[i].hidden = fd < 0;
		if (fd >= 0)
			close(fd);
	}
}
