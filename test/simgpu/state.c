/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_TRY_NS 20000000
#define LOCK_TRIES 3000

#define SIM_STATE_MAGIC 0x3230305550474d53ull /* "SMGPU002" */
#define LOCKS_AT (1ll << 40) /* of the first process, behind all that the file has */

struct sim_conf sim_conf;

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_state *state;
static struct sim_proc *self;

struct sim_state *sim_state(void)
{
	return state;
}

struct sim_proc *sim_self(void)
{
	return self;
}

unsigned sim_own_slot(void)
{
	return self != NULL ? (unsigned)(self - state->proc) : SIM_MAX_PROCS;
}

uint64_t sim_pidns(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

uint64_t sim_proc_start_ticks(int pid)
{
	char path[40], text[1024];
	const char *p;
	unsigned long long start;
	char status;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	p = strrchr(text, ')'); /* the name may hold anything */
	if (p == NULL ||
	    sscanf(p + 1,
		   " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
		   &status, &start) != 2)
		return 0;
	return status == 'Z' || status == 'X' ? 0 : start;
}

/* The driver keeps what a process had until the last copy of its descriptors is closed, by a child too that
 * it forked; an exec closes them, and mappings of them keep nothing (driver 580.159, H200). So this one has a
 * lock, which belongs to a descriptor. */
static bool ask_lock(int fd, int command, unsigned slot, struct flock *lock)
{
	*lock = (struct flock){
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCKS_AT + slot, .l_len = 1
	};
	return fcntl(fd, command, lock) == 0;
}

static bool is_kept(int fd, unsigned slot)
{
	struct flock lock;

	return !ask_lock(fd, F_OFD_GETLK, slot, &lock) || lock.l_type != F_UNLCK;
}

static void read_boot_id(char *to, size_t size)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, to, size - 1) : 0;

	if (fd >= 0)
		close(fd);
	to[n > 0 ? n : 0] = '\0';
	to[strcspn(to, "\n")] = '\0';
}

/* Open before create: in a sticky folder O_CREAT is refused on another user's file. */
static int open_state(const char *path)
{
	for (int tries = 0; tries < 100; tries++) {
		int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

		if (fd >= 0 || errno != ENOENT)
			return fd >= 0 ? fd : -errno;
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
		if (fd >= 0) {
			fchmod(fd, 0666); /* whatever the umask */
			return fd;
		}
		if (errno != EEXIST)
			return -errno;
	}
	return -EBUSY;
}

static int init_state(struct sim_state *fresh, const char *boot_id)
{
	pthread_mutexattr_t attr;
	int rc;

	memset(fresh, 0, sizeof(*fresh));
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	rc = pthread_mutex_init(&fresh->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	if (rc != 0)
		return -rc;
	fresh->size_bytes = sizeof(*fresh);
	snprintf(fresh->boot_id, sizeof(fresh->boot_id), "%s", boot_id);
	__atomic_store_n(&fresh->magic, SIM_STATE_MAGIC, __ATOMIC_RELEASE);
	return 0;
}

/* Every process passes here under flock, so the first one, or the first one of this boot, makes
 * the file and nobody sees it half made. */
static int map_state(const char *path)
{
	struct sim_state *map;
	char boot_id[40];
	struct stat st;
	int fd, rc = 0;

	fd = open_state(path);
	if (fd < 0)
		return fd;
	while (flock(fd, LOCK_EX) != 0)
		if (errno != EINTR) {
			rc = -errno;
			close(fd);
			return rc;
		}
	read_boot_id(boot_id, sizeof(boot_id));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		rc = -EINVAL;
	else if ((size_t)st.st_size < sizeof(*map) && ftruncate(fd, sizeof(*map)) != 0)
		rc = -errno;
	if (rc == 0) {
		map = mmap(NULL, sizeof(*map), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED)
			rc = -errno;
		else if (map->magic != SIM_STATE_MAGIC || map->size_bytes != sizeof(*map) ||
			 strncmp(map->boot_id, boot_id, sizeof(map->boot_id)) != 0)
			rc = init_state(map, boot_id);
		if (rc == 0)
			state = map;
		else if (map != MAP_FAILED)
			munmap(map, sizeof(*map));
	}
	flock(fd, LOCK_UN); /* the mapping keeps the file open, and the lock with it */
	close(fd);
	return rc;
}

static int open_of(const char *dir)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/state", dir);
	return open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
}

int sim_attach(void)
{
	char path[PATH_MAX];
	int rc = 0;

	pthread_mutex_lock(&attach_lock);
	if (state == NULL) {
		rc = sim_conf_load(&sim_conf);
		if (rc == 0) {
			snprintf(path, sizeof(path), "%s/state", sim_conf.dir);
			rc = map_state(path);
			if (rc != 0)
				fprintf(stderr, "simgpu: %s: %s\n", path, strerror(-rc));
		}
	}
	pthread_mutex_unlock(&attach_lock);
	return rc;
}

/* After a process died inside the lock: its slot may be half written, the sums are not trusted. */
static void rebuild(void)
{
	for (int d = 0; d < SIM_MAX_DEVICES; d++) {
		uint64_t used = 0, managed = 0;

		for (unsigned i = 0; i < state->procs_high; i++)
			if (state->proc[i].live) {
				used += state->proc[i].device[d].mem_bytes;
				managed += state->proc[i].device[d].managed_bytes;
			}
		state->gpu[d].used_bytes = used;
		state->gpu[d].managed_bytes = managed;
	}
}

/* Not for ever: of a waiter that is killed just when it is woken, the next one does not always hear. */
static int lock_again_and_again(void)
{
	int rc = ETIMEDOUT;

	for (int tries = 0; rc == ETIMEDOUT && tries < LOCK_TRIES; tries++) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOCK_TRY_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		rc = pthread_mutex_timedlock(&state->lock, &until);
	}
	return rc;
}

bool sim_lock(void)
{
	int rc;

	if (state == NULL)
		return false;
	rc = lock_again_and_again();
	if (rc == EOWNERDEAD) {
		rebuild();
		rc = pthread_mutex_consistent(&state->lock);
	}
	return rc == 0;
}

void sim_unlock(void)
{
	pthread_mutex_unlock(&state->lock);
}

static void drop_proc(unsigned slot)
{
	struct sim_proc *proc = &state->proc[slot];

	for (int d = 0; d < SIM_MAX_DEVICES; d++) {
		state->gpu[d].used_bytes -= proc->device[d].mem_bytes;
		state->gpu[d].managed_bytes -= proc->device[d].managed_bytes;
		if (proc->device[d].busy_ns != 0)
			sim_time_cancel(d, slot);
	}
	memset(proc, 0, sizeof(*proc));
}

void sim_sweep(void)
{
	int fd = open_of(sim_conf.dir);

	for (unsigned i = 0; i < state->procs_high && fd >= 0; i++) {
		struct sim_proc *proc = &state->proc[i];

		if (proc->live && proc != self && !is_kept(fd, i))
			drop_proc(i);
	}
	close(fd);
}

static unsigned free_slot(void)
{
	for (unsigned i = 0; i < SIM_MAX_PROCS; i++)
		if (!state->proc[i].live)
			return i;
	return SIM_MAX_PROCS;
}

/* The descriptor is never closed here: it goes with the process. */
static bool take_slot(unsigned slot, uint64_t pidns, uint64_t start)
{
	struct flock lock;
	int fd = open_of(sim_conf.dir);

	if (fd < 0 || !ask_lock(fd, F_OFD_SETLK, slot, &lock)) {
		close(fd);
		return false;
	}
	self = &state->proc[slot];
	/* Whoever dropped the last one may have been killed before all of it was gone. */
	memset(self, 0, sizeof(*self));
	self->pid = getpid();
	self->pidns = pidns;
	self->start_ticks = start;
	self->live = 1;
	if (slot >= state->procs_high)
		state->procs_high = slot + 1;
	return true;
}

int sim_proc_register(void)
{
	uint64_t pidns = sim_pidns(), start = sim_proc_start_ticks(getpid());
	unsigned slot;
	int rc = 0;

	if (!sim_lock())
		return -EIO;
	self = NULL; /* a forked child has its parent's */
	sim_sweep(); /* what this process had before an exec */
	slot = free_slot();
	if (slot == SIM_MAX_PROCS)
		rc = -ENOSPC;
	else if (!take_slot(slot, pidns, start))
		rc = -EMFILE;
	sim_unlock();
	return rc;
}
