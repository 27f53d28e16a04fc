/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "process/pages_dir.h"

#include "base/sys.h"
#include "process/process.h"

#include <stdio.h>
#include <string.h>

#define FOREIGN_WRITE 022

/* Not by open and close, in which a thread can be cancelled: the driver's may come here. */
int vgpu_pages_open(const char *name, int flags, struct stat *st)
{
	const char *dir = vgpu_pages.pages_dir;
	char path[VGPU_PAGES_DIR_BYTES + 32] = "";
	int fd;

	if (dir[0] == '/' && strnlen(dir, VGPU_PAGES_DIR_BYTES) < VGPU_PAGES_DIR_BYTES)
		snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && (vgpu_fstat(fd, st) != 0 || !S_ISREG(st->st_mode) || (st->st_mode & FOREIGN_WRITE))) {
		syscall(SYS_close, fd);
		return -1;
	}
	return fd;
}
