/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "process/counted.h"

#include "base/sys.h"
#include "process/pages_dir.h"
#include "process/process.h"
#include "process/trust.h"
#include "tuning.h"

static bool read_page(int fd, struct vgpu_time *page)
{
	*page = (struct vgpu_time){0};
	return syscall(SYS_pread64, fd, page, sizeof(*page), (off_t)0) >= (long)VGPU_TIME_LEAST &&
	       page->magic == VGPU_TIME_MAGIC && page->layout_version == VGPU_VGPUD_VERSION &&
	       page->job_id == vgpu_pages.limits->job_id;
}

/* No mapping: root cuts the page when the job ends. */
static bool read_whole(int fd, struct vgpu_time *page)
{
	struct vgpu_time again;

	for (int try = 0; try < VGPU_COUNT_READ_TRIES; try++) {
		if (!read_page(fd, page) || !read_page(fd, &again))
			return false;
		if (page->sequence % 2 == 0 && again.sequence == page->sequence)
			return true;
	}
	return false;
}

bool vgpu_counted(uint32_t device, uint64_t now_ns, struct vgpu_time_device *out)
{
	struct vgpu_time page;
	struct stat st;
	int fd = vgpu_pages_open(VGPU_TIME_FILE, O_RDONLY, &st);
	bool ok;

	if (fd < 0)
		return false;
	ok = vgpu_trust_roots(fd, &st) && read_whole(fd, &page);
	syscall(SYS_close, fd);
	if (!ok || device >= VGPU_MAX_DEVICES || device >= page.device_count)
		return false;
	*out = page.device[device];
	return (out->flags & VGPU_TIME_UNCOUNTED) == 0 && out->looked_ns != 0 &&
	       out->looked_ns <= now_ns && now_ns - out->looked_ns < VGPU_COUNT_FRESH_NS;
}
