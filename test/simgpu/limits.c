/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Limits of memory by cgroup, as NVIDIA documents them for drivers from R615 on, in the form of the
 * driver's own table ("misc"): the nearest ancestor with a limit counts, and limits do not nest. */
#define _GNU_SOURCE
#include "sim.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* The part of a folder's path below the mount of the hierarchy: -errno where it is no folder of cgroup v2. */
static int below_mount(const char *folder, char *path, size_t size, uint64_t *inode)
{
	char line[PATH_MAX], mount[PATH_MAX], kind[64];
	struct statfs fs;
	struct stat st;
	FILE *file;
	int rc = -EINVAL;

	if (stat(folder, &st) != 0 || statfs(folder, &fs) != 0)
		return -errno;
	if (fs.f_type != CGROUP2_SUPER_MAGIC || !S_ISDIR(st.st_mode))
		return -EINVAL;
	*inode = st.st_ino;
	file = fopen("/proc/self/mounts", "re");
	if (file == NULL)
		return -errno;
	while (rc != 0 && fgets(line, sizeof(line), file) != NULL) {
		size_t n;

		if (sscanf(line, "%*s %4095s %63s", mount, kind) != 2 || strcmp(kind, "cgroup2") != 0)
			continue;
		n = strlen(mount);
		if (strncmp(folder, mount, n) == 0 && folder[n] == '/' && folder[n + 1] != '\0')
			rc = (size_t)snprintf(path, size, "%s", folder + n) < size ? 0 : -ENAMETOOLONG;
	}
	fclose(file);
	return rc;
}

/* Where the kernel has put this process. */
static bool own_path(char *path, size_t size)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX];
	bool found = false;

	while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		found = strncmp(line, "0::", 3) == 0 && (size_t)snprintf(path, size, "%s", line + 3) < size;
	}
	if (file != NULL)
		fclose(file);
	return found;
}

static bool is_below(const char *path, const char *above)
{
	size_t n = strlen(above);

	return strncmp(path, above, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* With the lock held. */
static struct sim_limit *find(int device, const char *path)
{
	for (int i = 0; i < SIM_MAX_LIMITS; i++) {
		struct sim_limit *limit = &sim_state()->limit[i];

		if (limit->path[0] != '\0' && limit->device == device && strcmp(limit->path, path) == 0)
			return limit;
	}
	return NULL;
}

static struct sim_limit *nearest(int device, const char *path)
{
	struct sim_limit *best = NULL;

	for (int i = 0; i < SIM_MAX_LIMITS; i++) {
		struct sim_limit *limit = &sim_state()->limit[i];

		if (limit->path[0] != '\0' && limit->device == device && is_below(path, limit->path) &&
		    (best == NULL || strlen(limit->path) > strlen(best->path)))
			best = limit;
	}
	return best;
}

static uint64_t used_below(int device, const char *path)
{
	uint64_t used = 0;

	for (unsigned i = 0; i < sim_state()->procs_high; i++) {
		const struct sim_proc *proc = &sim_state()->proc[i];

		if (proc->live && is_below(proc->cgroup, path))
			used += proc->device[device].mem_bytes - proc->device[device].managed_bytes;
	}
	return used;
}

bool sim_limit_allows(int device, uint64_t more)
{
	const struct sim_limit *limit;

	if (!sim_conf.memory_limits)
		return true;
	if (sim_self()->cgroup[0] == '\0' && !own_path(sim_self()->cgroup, sizeof(sim_self()->cgroup)))
		return true;
	limit = nearest(device, sim_self()->cgroup);
	return limit == NULL || used_below(device, limit->path) + more <= limit->hard_bytes;
}

int sim_limit_set(int device, const char *folder, uint64_t soft, uint64_t hard)
{
	char path[SIM_CGROUP_BYTES];
	struct sim_limit *limit;
	uint64_t inode;
	int rc = below_mount(folder, path, sizeof(path), &inode);

	if (rc != 0)
		return rc;
	if (!sim_lock())
		return -EIO;
	limit = find(device, path);
	for (int i = 0; limit == NULL && i < SIM_MAX_LIMITS; i++)
		if (sim_state()->limit[i].path[0] == '\0')
			limit = &sim_state()->limit[i];
	if (limit == NULL)
		rc = -ENOSPC;
	else if (soft == 0 && hard == UINT64_MAX)
		memset(limit, 0, sizeof(*limit));
	else {
		*limit = (struct sim_limit){
			.inode = inode, .soft_bytes = soft, .hard_bytes = hard, .device = device};
		memcpy(limit->path, path, sizeof(path));
	}
	sim_unlock();
	return rc;
}

int sim_limit_get(int device, const char *folder, uint64_t *soft, uint64_t *hard, uint64_t *used)
{
	char path[SIM_CGROUP_BYTES];
	struct sim_limit *limit;
	uint64_t inode;
	int rc = below_mount(folder, path, sizeof(path), &inode);

	if (rc != 0)
		return rc;
	if (!sim_lock())
		return -EIO;
	sim_sweep();
	limit = find(device, path);
	if (limit != NULL && limit->inode != inode) { /* it went with its folder, and this is another one */
		memset(limit, 0, sizeof(*limit));
		limit = NULL;
	}
	if (limit != NULL) {
		*soft = limit->soft_bytes;
		*hard = limit->hard_bytes;
		*used = used_below(device, path);
	}
	sim_unlock();
	return limit != NULL ? 0 : -ESRCH;
}
