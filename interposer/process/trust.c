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

/* Whether the kernel lets this process read the file without a trace, which it does for nobody but the owner
 * and who has power over him: whatever the file looks like here, and whatever its mode. */
enum mine { NOT_MINE, MINE, UNKNOWN };

static enum mine ask_mine(int fd)
{
	int flags = (int)syscall(SYS_fcntl, fd, F_GETFL);

	if (flags < 0)
		return UNKNOWN;
	if (syscall(SYS_fcntl, fd, F_SETFL, flags | O_NOATIME) != 0)
		return errno == EPERM ? NOT_MINE : UNKNOWN;
	syscall(SYS_fcntl, fd, F_SETFL, flags);
	return MINE;
}

/* A filter of calls may answer in the kernel's place. */
static bool kernel_answers(void)
{
	int fd[2];
	bool answers;

	if (syscall(SYS_pipe2, fd, O_CLOEXEC) != 0)
		return false;
	answers = ask_mine(fd[0]) == MINE;
	close(fd[0]);
	close(fd[1]);
	return answers;
}

/* How root's files look here, by one that no mount can hide: all descriptors of events stand for one file,
 * which the kernel made when it started. */
struct root {
	bool known;
	uid_t uid;
	enum mine mine; /* MINE: this process is root's */
};

static struct root find_root(void)
{
	int fd = (int)syscall(SYS_eventfd2, 0, O_CLOEXEC);
	struct root root = {0};
	struct stat st;

	if (fd < 0)
		return root;
	if (vgpu_fstat(fd, &st) == 0) {
		root.uid = st.st_uid;
		root.mine = ask_mine(fd);
		root.known = root.mine != UNKNOWN && kernel_answers();
	}
	close(fd);
	return root;
}

/* Kernels without user namespaces have no such file, but the others of this folder. */
static bool has_no_map(void)
{
	struct stat st;

	return errno == ENOENT && vgpu_stat("/proc/self/stat", &st) == 0;
}

/* The text is what a mount can put there, so root must look like himself as well. */
bool vgpu_trust_same_ids(void)
{
	struct root root = find_root();
	bool is_first = root.known && root.uid == 0;
	int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
	char text[128] = "";
	const char *at = text;
	uint64_t number[3];
	ssize_t n;

	if (fd < 0)
		return is_first && has_no_map();
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	for (int i = 0; i < 3 && n > 0; i++) {
		at += strspn(at, " ");
		if (!vgpu_number_read(&at, &number[i]))
			return false;
	}
	return n > 0 && is_first && number[0] == 0 && number[1] == 0 && number[2] == UINT32_MAX;
}

/* Without the kernel's /proc nobody can tell which processes live. */
static bool has_proc(void)
{
	uint64_t system[16] = {0}; /* struct statfs, whose type comes first */
	int fd = open("/proc/self/stat", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	bool is_proc;

	if (fd < 0)
		return false;
	is_proc = syscall(SYS_fstatfs, fd, system) == 0 && (uint32_t)system[0] == PROC_MAGIC;
	close(fd);
	return is_proc;
}

bool vgpu_trust_roots(int fd, const struct stat *st)
{
	struct root root;

	if (st->st_mode & FOREIGN_WRITE)
		return false;
#ifdef VGPU_TEST_OWNER
	if (st->st_uid == (uid_t)syscall(SYS_geteuid))
		return true;
#endif
	root = find_root();
	return root.known && st->st_uid == root.uid && ask_mine(fd) == root.mine && has_proc();
}

bool vgpu_trust_users(const struct stat *st, uint32_t uid, bool mine)
{
	struct root root;

	if (st->st_mode & FOREIGN_WRITE)
		return false;
	/* Root makes them for those who may make none. */
	if (st->st_uid == uid || vgpu_trust_same_ids())
		return st->st_uid == uid || st->st_uid == 0;
	root = find_root();
	return (root.known && st->st_uid == root.uid) ||
	       (mine && st->st_uid == (uid_t)syscall(SYS_geteuid));
}
