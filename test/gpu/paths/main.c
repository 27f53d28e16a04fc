/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Finds, for one path by which a program gets device memory, the largest amount that works and the
 * smallest that fails, and what everybody says about it. One path per process: nothing that a path
 * leaves behind can touch the next. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CUdevice the_device;
const char *the_program = "/proc/self/exe";

static struct path *const families[] = { memory_paths, pool_paths,    vmm_paths,    array_paths,
					 graph_paths,  context_paths, shared_paths, race_paths };

static const struct path *next_path(size_t *family, size_t *index)
{
	while (*family < sizeof(families) / sizeof(families[0])) {
		const struct path *p = &families[*family][(*index)++];

		if (p->name != NULL)
			return p;
		(*family)++;
		*index = 0;
	}
	return NULL;
}

static int mem_info(size_t *free_bytes, size_t *total_bytes)
{
	return (int)cu.cuMemGetInfo_v2(free_bytes, total_bytes);
}

static void uuid_text(char text[64])
{
	CUuuid uuid;
	const unsigned char *b = (const unsigned char *)uuid.bytes;
	int used = 0;

	text[0] = '\0';
	if (cu.cuDeviceGetUuid(&uuid, the_device) != CUDA_SUCCESS)
		return;
	used = sprintf(text, "GPU-");
	for (int i = 0; i < 16; i++)
		used += sprintf(text + used, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				b[i]);
}

static int run(const struct path *path, uint64_t cap_mib)
{
	struct path_driver driver = { .mem_info = mem_info };
	char uuid[64];
	int error;

	if (!cuda_load())
		return 1;
	error = (int)cu.cuInit(0);
	if (error == 0)
		error = (int)cu.cuDeviceGet(&the_device, 0);
	if (error == 0 && !(path->flags & PATH_NO_CONTEXT))
		error = (int)cuda_begin(&the_device);
	if (error != 0) {
		path_absent(path->name, error, "CUDA does not start");
		return 1;
	}
	uuid_text(uuid);
	driver.uuid = uuid;
	return path_search(path, &driver, cap_mib);
}

static int usage(FILE *to, int status)
{
	fputs("usage: paths --list | --header\n"
	      "       paths --one NAME [--cap MIB]\n"
	      "Prints one tab-separated row: where the path ends, in bytes. --cap is the most that is tried\n"
	      "(all that the device has).\n", to);
	return status;
}

int main(int argc, char **argv)
{
	const char *name = NULL;
	const struct path *p;
	uint64_t cap_mib = 0;
	size_t family = 0, index = 0;

	if (argc == 3 && strcmp(argv[1], "--importer") == 0)
		return shared_importer(atoi(argv[2]));
	if (argc == 3 && strcmp(argv[1], "--racer") == 0)
		return race_racer(4, (unsigned int)atoi(argv[2]));
	if (argc == 3 && strcmp(argv[1], "--starter") == 0)
		return race_starter(atoi(argv[2]));
	if (argc == 2 && strcmp(argv[1], "--header") == 0) {
		path_header();
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		while ((p = next_path(&family, &index)) != NULL)
			puts(p->name);
		return 0;
	}
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--one") == 0 && i + 1 < argc)
			name = argv[++i];
		else if (strcmp(argv[i], "--cap") == 0 && i + 1 < argc)
			cap_mib = strtoull(argv[++i], NULL, 10);
		else
			return usage(stderr, 2);
	}
	if (name == NULL)
		return usage(stderr, 2);
	while ((p = next_path(&family, &index)) != NULL)
		if (strcmp(p->name, name) == 0)
			return run(p, cap_mib);
	fprintf(stderr, "paths: no path \"%s\"\n", name);
	return 2;
}
