/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "channels/page.h"

#include "base/atomics.h"
#include "base/sys.h"
#include "process/pages_dir.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* The head of the page, before the places. */
struct head {
	uint64_t magic;
	uint32_t layout_version, size_bytes, job_id, reserved[3];
};
_Static_assert(sizeof(struct head) == offsetof(struct vgpu_groups, process), "the page's head");

#define HEAD_BYTES offsetof(struct vgpu_groups_process, group)

static bool read_at(int fd, void *to, size_t bytes, size_t at)
{
	return syscall(SYS_pread64, fd, to, bytes, (off_t)at) == (long)bytes;
}

/* As a user limits the files that his programs write: the kernel kills who writes behind that
 * (setrlimit(2)). */
static bool may_write(size_t end)
{
	uint64_t limit[2]; /* now, and at most: struct rlimit64 */

	return syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, limit) != 0 || end <= limit[0];
}

/* Stores are no writes. That the file is given the size that it has is what root is woken by. */
static bool store_at(int fd, const void *from, size_t bytes, size_t at)
{
	const size_t size = at + bytes;
	struct stat st;
	char *page;

	if (vgpu_fstat(fd, &st) != 0 || st.st_size < (off_t)size)
		return false;
	page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return false;
	memcpy(page + at, from, bytes);
	munmap(page, size);
	return syscall(SYS_ftruncate, fd, st.st_size) == 0;
}

static bool write_at(int fd, const void *from, size_t bytes, size_t at)
{
	if (!may_write(at + bytes))
		return store_at(fd, from, bytes, at);
	return syscall(SYS_pwrite64, fd, from, bytes, (off_t)at) == (long)bytes;
}

static bool is_this_jobs(int fd)
{
	struct head head;

	return read_at(fd, &head, sizeof(head), 0) && head.magic == VGPU_GROUPS_MAGIC &&
	       head.layout_version == VGPU_VGPUD_VERSION && head.job_id == vgpu_pages.limits->job_id;
}

/* Takes a place that another process has left, or another program of this one. *empty: nothing was in it. */
static bool take_place(struct vgpu_channels *channels, int fd, uint32_t slot, size_t at, bool *empty)
{
	struct vgpu_groups_process before;

	*empty = false;
	if (channels->slot == slot + 1)
		return true;
	if (!read_at(fd, &before, HEAD_BYTES, at))
		return false;
	*empty = before.pid == 0 && before.count == 0 && before.more == 0;
	channels->sequence = before.sequence;
	channels->slot = slot + 1;
	return true;
}

static bool write_groups(const struct vgpu_handles *handles, int fd, uint32_t count, size_t at)
{
	bool ok = true;

	for (uint32_t i = 0; i < count && ok; i++) {
		struct vgpu_channel_group group = vgpu_handles_group(handles, i);

		ok = write_at(fd, &group, sizeof(group), at + HEAD_BYTES + i * sizeof(group));
	}
	return ok;
}

static bool write_place(struct vgpu_process *p, int fd, uint32_t slot)
{
	struct vgpu_channels *channels = vgpu_channels(p);
	size_t at = offsetof(struct vgpu_groups, process) + slot * sizeof(struct vgpu_groups_process);
	struct vgpu_groups_process head; /* its groups are not looked at: they are 3 KiB */
	bool empty;

	if (!take_place(channels, fd, slot, at, &empty))
		return false;
	head.start_ticks = p->start_ticks;
	head.pidns = p->pidns;
	head.pid = p->pid;
	head.count = vgpu_handles_count(&channels->handles);
	head.more = vgpu_handles_more(&channels->handles) + GET(channels->lost) + GET(channels->unseen);
	if (empty && head.count == 0 && head.more == 0)
		return true;
	/* Odd until all of it stands there, and another number than before then. */
	channels->sequence |= 1;
	if (!write_at(fd, &channels->sequence, sizeof(channels->sequence),
		      at + offsetof(struct vgpu_groups_process, sequence)) ||
	    !write_groups(&channels->handles, fd, head.count, at))
		return false;
	head.sequence = ++channels->sequence;
	return write_at(fd, &head, HEAD_BYTES, at);
}

bool vgpu_channels_write(struct vgpu_process *p)
{
	uint32_t slot = GET(p->slot);
	struct stat st;
	int fd = vgpu_pages_open(VGPU_GROUPS_FILE, O_RDWR, &st);
	bool ok;

	if (fd < 0)
		return false;
	ok = slot < VGPU_MAX_PROCS && is_this_jobs(fd) && write_place(p, fd, slot);
	syscall(SYS_close, fd);
	return ok;
}
