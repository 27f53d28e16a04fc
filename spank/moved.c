/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "moved.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* interposer/api/layout.h has the same folders (VGPU_SELF_DIR, VGPU_DEV_DIR). */
static const char *const folders[] = {"/run/slurm-vgpu/self", "/dev/slurm-vgpu"};

/* The folder of the folders of the job's steps, as root has opened it. */
static int steps_folder = -1;

void vgpu_moved_prepare(const struct vgpu_plan *plan)
{
	char path[sizeof(plan->step_dir) + 3];

	if (steps_folder >= 0)
		return;
	snprintf(path, sizeof(path), "%s/..", plan->step_dir);
	steps_folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Whether a folder is that of one of the job's steps: it, and not what it says, which anyone can write. */
static bool is_jobs(const char *folder)
{
	struct stat here, step;
	const struct dirent *entry;
	bool is = false;
	int fd = openat(steps_folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *steps = fd < 0 ? NULL : fdopendir(fd);

	if (!steps) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	if (lstat(folder, &here) == 0)
		while (!is && (entry = readdir(steps)))
			is = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
			     fstatat(fd, entry->d_name, &step, AT_SYMLINK_NOFOLLOW) == 0 &&
			     step.st_dev == here.st_dev && step.st_ino == here.st_ino;
	closedir(steps);
	return is;
}

/* A device file that is not the job's, where no mount keeps it from being opened. */
static bool is_open_here(const char *node)
{
	struct stat st;
	struct statvfs fs;

	if (stat(node, &st) != 0)
		return errno != ENOENT && errno != ENOTDIR;
	return S_ISCHR(st.st_mode) && (statvfs(node, &fs) != 0 || !(fs.f_flag & ST_NODEV));
}

bool vgpu_moved_is_held(const struct vgpu_plan *plan)
{
	if (plan->library[0])
		return is_jobs(folders[0]) || is_jobs(folders[1]);
	for (uint32_t i = 0; i < plan->foreign_count && i < VGPU_MASK_COUNT; i++)
		if (is_open_here(plan->mask[i]))
			return false;
	return true;
}
