/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "page.h"

#include "api/layout.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

static void *map(const char *path, size_t size, int flags, int protection)
{
	int fd = open(path, flags | O_CLOEXEC);
	void *at = MAP_FAILED;

	if (fd >= 0) {
		at = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
		close(fd);
	}
	return at == MAP_FAILED ? NULL : at;
}

struct page *page_map(const char *path)
{
	return map(path, sizeof(struct page), O_RDWR, PROT_READ | PROT_WRITE);
}

unsigned int pretended_percent(const char *path)
{
	static const struct vgpu_limits *limits;

	if (limits == NULL)
		limits = map(path, sizeof(*limits), O_RDONLY, PROT_READ);
	return limits != NULL ? __atomic_load_n(&limits->device[0].sm_percent, __ATOMIC_RELAXED) : 0;
}
