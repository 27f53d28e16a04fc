/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "process/step.h"

#include "base/number.h"
#include "base/sys.h"
#include "process/trust.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* VGPU_STEP_DIR may come from anywhere: it must at least have the shape of a step's folder.
 * *job is the job's id in it. */
static bool is_step_path(const char *path, uint64_t *job)
{
	const char *name = strrchr(path, '/');
	const char *steps;
	const char *end;

	if (path[0] != '/' || name == NULL || name[1] == '\0')
		return false;
	steps = name;
	while (steps > path && steps[-1] != '/')
		steps--;
	if (strncmp(steps, "steps/", 6) != 0 || steps - 1 <= path)
		return false;
	name = steps - 1; /* the slash before steps */
	while (name > path && name[-1] != '/')
		name--;
	end = name;
	return vgpu_number_read(&end, job) && end == steps - 1 && name - path >= 6 &&
	       strncmp(name - 6, "/jobs/", 6) == 0;
}

/* -1 with *why NULL when there is no such folder. */
static int open_folder(const char *path, const char **why)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	*why = NULL;
	if (fd < 0) {
		if (errno != ENOENT)
			*why = "the step's folder cannot be opened";
		return -1;
	}
	if (vgpu_fstat(fd, &st) == 0 && vgpu_trust_roots(fd, &st))
		return fd;
	/* An image may have a folder on which nothing was mounted. */
	if (syscall(SYS_newfstatat, fd, VGPU_LIMITS_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		*why = "the step's folder is not root's alone";
	close(fd);
	return -1;
}

static const struct vgpu_limits *map_limits(int folder_fd, const char **why)
{
	const struct vgpu_limits *limits;
	struct stat st;
	int fd = openat(folder_fd, VGPU_LIMITS_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	*why = NULL;
	if (fd < 0) {
		if (errno != ENOENT)
			*why = "the limits page cannot be opened";
		return NULL;
	}
	if (vgpu_fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !vgpu_trust_roots(fd, &st)) {
		*why = "the limits page is not root's alone";
		close(fd);
		return NULL;
	}
	/* Root takes it away when the step has ended. Who has mounted it elsewhere has it still, and another
	 * job's ledger may have the device and inode that it names. */
	if (st.st_nlink == 0) {
		*why = "the limits page is of a step that has ended";
		close(fd);
		return NULL;
	}
	if (st.st_size < (off_t)VGPU_LIMITS_LEAST) {
		*why = "the limits page is too short";
		close(fd);
		return NULL;
	}
	limits = mmap(NULL, sizeof(*limits), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (limits == MAP_FAILED) {
		*why = "the limits page cannot be mapped";
		return NULL;
	}
	if (limits->magic != VGPU_LIMITS_MAGIC || limits->layout_version != VGPU_LAYOUT_VERSION ||
	    limits->device_count > VGPU_MAX_DEVICES)
		*why = "the limits page is of another version";
	/* In a user namespace ids say little: the page names the ledger, and the kernel knows who may
	 * write that. */
	else if (limits->uid != getuid() && getuid() != 0 && vgpu_trust_same_ids())
		*why = "the limits page is another user's";
	if (*why == NULL)
		return limits;
	munmap((void *)limits, sizeof(*limits));
	return NULL;
}

/* Where an isolated step has its folder, and in it what it needs of others. */
static const struct place {
	const char *folder, *pages_dir, *ledger;
} place[] = {
	{VGPU_SELF_DIR, VGPU_SELF_DIR "/" VGPU_PAGES, VGPU_SELF_DIR "/" VGPU_LEDGER_FILE},
	{VGPU_DEV_DIR, VGPU_DEV_DIR "/" VGPU_PAGES, VGPU_DEV_DIR "/" VGPU_LEDGER_FILE},
};

/* Where the plugin could not mount them. */
static const char *pages_dir_of(const struct place *at, const struct vgpu_limits *limits)
{
	struct stat st;

	return vgpu_stat(at->pages_dir, &st) == 0 && S_ISDIR(st.st_mode) ? at->pages_dir : limits->pages_dir;
}

/* NULL with *why NULL when this is no isolated step. */
static const struct vgpu_limits *find_place(int *folder_fd, const char **why)
{
	for (size_t i = 0; i < sizeof(place) / sizeof(place[0]); i++) {
		const struct vgpu_limits *limits;

		*folder_fd = open_folder(place[i].folder, why);
		if (*folder_fd < 0 && *why != NULL)
			return NULL;
		if (*folder_fd < 0)
			continue;
		limits = map_limits(*folder_fd, why);
		if (limits != NULL) {
			vgpu_pages.pages_dir = pages_dir_of(&place[i], limits);
			vgpu_pages.ledger_path = place[i].ledger;
			return limits;
		}
		close(*folder_fd);
		if (*why != NULL)
			return NULL;
	}
	return NULL;
}

/* Preload isolation: by the folder's own path. */
static const struct vgpu_limits *find_named(int *folder_fd, const char **why)
{
	const char *path = getenv(VGPU_STEP_DIR_ENV);
	const struct vgpu_limits *limits = NULL;
	uint64_t job;

	if (path == NULL) {
		*why = "this is not a step with a GPU slice";
		return NULL;
	}
	if (!is_step_path(path, &job)) {
		*why = VGPU_STEP_DIR_ENV " is not a step's folder";
		return NULL;
	}
	*folder_fd = open_folder(path, why);
	if (*folder_fd >= 0) {
		limits = map_limits(*folder_fd, why);
		if (limits != NULL && limits->job_id != job) {
			*why = "the limits page is another job's";
			munmap((void *)limits, sizeof(*limits));
			limits = NULL;
		}
		if (limits != NULL) {
			static char ledger[4096];
			int length = snprintf(ledger, sizeof(ledger), "%s/" VGPU_LEDGER_FILE, path);

			vgpu_pages.pages_dir = limits->pages_dir;
			vgpu_pages.ledger_path = length < (int)sizeof(ledger) ? ledger : NULL;
			return limits;
		}
		close(*folder_fd);
	}
	if (*why == NULL)
		*why = "the step's folder has no limits page";
	return NULL;
}

const struct vgpu_limits *vgpu_step_limits(int *folder_fd, const char **why)
{
	const struct vgpu_limits *limits = find_place(folder_fd, why);

	return limits != NULL || *why != NULL ? limits : find_named(folder_fd, why);
}

/* Nobody but root can make another file that is this one, wherever he mounts what. */
static bool is_named(const struct stat *st, const struct vgpu_limits *limits)
{
	return st->st_ino == limits->ledger_inode && st->st_dev == limits->ledger_device;
}

struct vgpu_ledger *vgpu_step_ledger(int folder_fd, const struct vgpu_limits *limits, const char **why)
{
	struct vgpu_ledger *ledger;
	struct stat st;
	/* A link to where the job's user may own files. The folder is root's, so the link is. */
	int fd = openat(folder_fd, VGPU_LEDGER_FILE, O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0) {
		*why = errno == EACCES ? "the ledger is another user's" : "the ledger cannot be opened";
		return NULL;
	}
	if (vgpu_fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !vgpu_trust_users(&st, limits->uid, true) ||
	    !is_named(&st, limits)) {
		*why = "the ledger is not the job's alone";
		close(fd);
		return NULL;
	}
	if (st.st_size < (off_t)sizeof(*ledger)) {
		*why = "the ledger is too short";
		close(fd);
		return NULL;
	}
	ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (ledger == MAP_FAILED) {
		*why = "the ledger cannot be mapped";
		return NULL;
	}
	if (ledger->magic == VGPU_LEDGER_MAGIC && ledger->layout_version == VGPU_LAYOUT_VERSION &&
	    ledger->job_id == limits->job_id)
		return ledger;
	*why = "the ledger is another job's, or damaged";
	munmap(ledger, sizeof(*ledger));
	return NULL;
}
