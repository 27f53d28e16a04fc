/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "process/trust.h"

#include "base/number.h"
#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Group and others. */
#define FOREIGN_WRITE 022
#define PROC_MAGIC 0x9fa0


/* Kernels without user namespaces have no such file, but the others of this folder. */
static bool has_no_map(void)
{
	struct stat st;

	return errno == ENOENT && vgpu_stat("/proc/self/stat", &st) == 0;
}

bool vgpu_trust_same_ids(void)
{
	int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
	char text[128] = "";
	const char *at = text;
	uint64_t number[3];
	ssize_t n;

	if (fd < 0)
		return has_no_map();
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	for (int i = 0; i < 3 && n > 0; i++) {
		at += strspn(at, " ");
		if (!vgpu_number_read(&at, &number[i]))
			return false;
	}
	return n > 0 && number[0] == 0 && number[1] == 0 && number[2] == UINT32_MAX;
}

/* The kernel's settings are root's, so their owner is what root looks like here: the overflow id, but where a
 * namespace of root's own has him. */
static bool root_looks_like(uid_t uid)
{
	uint64_t system[16] = {0}; /* struct statfs, whose type comes first */
	int fd = open("/proc/sys/kernel", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	bool known;

	if (fd < 0)
		return false;
	known = syscall(SYS_fstatfs, fd, system) == 0 && (uint32_t)system[0] == PROC_MAGIC &&
		vgpu_fstat(fd, &st) == 0 && st.st_uid == uid;
	close(fd);
	return known;
}

/* Asked of the kernel, which lets nobody but a file's owner, or who has power over him, read it without a
 * trace: whatever it looks like here, and whatever its mode. */
static bool is_mine(int fd)
{
	char path[32];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOATIME | O_CLOEXEC);
	if (again < 0)
		return errno != EPERM;
	close(again);
	return true;
}

bool vgpu_trust_roots(int fd, const struct stat *st)
{
	if (st->st_mode & FOREIGN_WRITE)
		return false;
#ifdef VGPU_TEST_OWNER
	if (st->st_uid == (uid_t)syscall(SYS_geteuid)) /* the watchdog comes here: see checks/watchdog.sh */
		return true;
#endif
	if (vgpu_trust_same_ids())
		return st->st_uid == 0;
	return root_looks_like(st->st_uid) && !is_mine(fd);
}

bool vgpu_trust_users(const struct stat *st, uint32_t uid, bool mine)
{
	if (st->st_mode & FOREIGN_WRITE)
		return false;
	/* Root makes them for those who may make none. */
	if (st->st_uid == uid || vgpu_trust_same_ids())
		return st->st_uid == uid || st->st_uid == 0;
	return root_looks_like(st->st_uid) || (mine && st->st_uid == (uid_t)syscall(SYS_geteuid));
}
