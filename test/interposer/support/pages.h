/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A job with a folder of pages, as the prolog makes it. */
#ifndef VGPU_TEST_PAGES_H
#define VGPU_TEST_PAGES_H

#include "harness.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static inline void *page_map(const char *path, size_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	void *page = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
		page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		perror(path);
		_exit(99);
	}
	close(fd);
	return page;
}

static inline struct step step_with_pages(void)
{
	struct step step = step_make((uint32_t)getpid() * 100, 0, 1000, 1000);

	snprintf(step.limits->pages_dir, sizeof(step.limits->pages_dir), "%s/pages-%d",
		 getenv("VGPU_TEST_ROOT"), (int)getpid());
	mkdir(step.limits->pages_dir, 0755);
	return step;
}

/* The page that the job's processes write their groups down on. */
static inline struct vgpu_groups *groups_make(const struct step *step)
{
	struct vgpu_groups *page;
	char path[600];

	snprintf(path, sizeof(path), "%s/" VGPU_GROUPS_FILE, step->limits->pages_dir);
	page = page_map(path, sizeof(*page));
	page->magic = VGPU_GROUPS_MAGIC;
	page->layout_version = VGPU_VGPUD_VERSION;
	page->size_bytes = sizeof(*page);
	page->job_id = step->limits->job_id;
	return page;
}

#endif
