/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Jobs with slices of one GPU, on its board, and processes of theirs that keep it busy. */
#ifndef VGPU_TEST_SLICES_H
#define VGPU_TEST_SLICES_H

#include "busy.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define MS 1000000ull
#define SLICES_AHEAD 8
#define SLICES_LAUNCHES 65536u
#define SLICES_WORKS_S 120

struct worker {
	pid_t pid;
	unsigned us;
	uint32_t end;
	uint32_t launches;
	uint64_t launched_ns[SLICES_LAUNCHES]; /* when which of them was seen to be done */
};

static inline void *slices_page(const char *path, size_t size)
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

static inline void slice_claims_path(const struct step *step, char path[600])
{
	snprintf(path, 600, "%s/%u", step->limits->pages_dir, step->limits->job_id);
	mkdir(path, 0755);
	snprintf(path, 600, "%s/" VGPU_CLAIMS_FILE, step->limits->pages_dir);
}

static inline struct vgpu_claims *slice_claims(const struct step *step)
{
	char path[600];

	slice_claims_path(step, path);
	return slices_page(path, sizeof(struct vgpu_claims));
}

/* As root does: a slice is on the board with the share that its job has now, and the layout of its claims. */
static inline void slice_post_as(const struct step *step, uint32_t turns_version)
{
	struct vgpu_board *board;
	char path[600];
	uint32_t i;

	snprintf(path, sizeof(path), "%s/%s", step->limits->pages_dir, UUID0);
	board = slices_page(path, sizeof(*board));
	board->magic = VGPU_BOARD_MAGIC;
	board->layout_version = VGPU_VGPUD_VERSION;
	board->size_bytes = sizeof(*board);
	__atomic_add_fetch(&board->sequence, 1, __ATOMIC_ACQ_REL);
	for (i = 0; i < board->count && board->slice[i].job_id != step->limits->job_id; i++)
		;
	board->slice[i] = (struct vgpu_board_slice){.job_id = step->limits->job_id,
						    .flags = step->limits->flags & VGPU_ELASTIC,
						    .sm_percent = step->limits->device[0].job_sm_percent,
						    .uid = getuid(),
						    .turns_version = turns_version};
	__atomic_store_n(&board->count, i < board->count ? board->count : i + 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&board->sequence, 1, __ATOMIC_ACQ_REL);
	munmap(board, sizeof(*board));
}

static inline void slice_post(const struct step *step)
{
	slice_post_as(step, VGPU_VGPUD_VERSION);
}

/* As root does: who keeps the shares of the slices on the board. */
static inline void slices_keep(const struct step *step, uint32_t kept_by)
{
	struct vgpu_board *board;
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", step->limits->pages_dir, UUID0);
	board = slices_page(path, sizeof(*board));
	__atomic_add_fetch(&board->sequence, 1, __ATOMIC_ACQ_REL);
	__atomic_store_n(&board->kept_by, kept_by, __ATOMIC_RELAXED);
	__atomic_add_fetch(&board->sequence, 1, __ATOMIC_ACQ_REL);
	munmap(board, sizeof(*board));
}

/* As a release with another layout does: the board is a new file. */
static inline void slice_replace_board(const struct step *step, uint32_t turns_version)
{
	char path[600], fresh[610];
	struct vgpu_board *board, *old;

	snprintf(path, sizeof(path), "%s/%s", step->limits->pages_dir, UUID0);
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	old = slices_page(path, sizeof(*old));
	board = slices_page(fresh, sizeof(*board));
	*board = *old;
	board->layout_version = turns_version;
	munmap(old, sizeof(*old));
	munmap(board, sizeof(*board));
	CHECK_IS(rename(fresh, path), 0);
}

/* A job with one step that has this share of the first GPU, beside the others of this case. */
static inline struct step slice_make(uint32_t job, unsigned percent, uint32_t flags)
{
	/* Jobs of other cases are not on its board. */
	struct step step = step_make((uint32_t)getpid() * 100 + job, 0, 1000, 1000);
	struct vgpu_claims *claims;

	step.limits->flags |= flags;
	step.limits->device[0].sm_percent = step.limits->device[0].job_sm_percent = percent;
	snprintf(step.limits->pages_dir, sizeof(step.limits->pages_dir), "%s/turns-%d",
		 getenv("VGPU_TEST_ROOT"), (int)getpid());
	mkdir(step.limits->pages_dir, 0755);
	claims = slice_claims(&step);
	*claims = (struct vgpu_claims){.magic = VGPU_CLAIMS_MAGIC,
				       .layout_version = VGPU_VGPUD_VERSION,
				       .size_bytes = sizeof(*claims),
				       .job_id = step.limits->job_id,
				       .device_count = 1};
	munmap(claims, sizeof(*claims));
	slice_post(&step);
	return step;
}

static inline void slice_change(const struct step *step, unsigned percent)
{
	__atomic_store_n(&step->limits->device[0].sm_percent, percent, __ATOMIC_RELAXED);
	__atomic_store_n(&step->limits->device[0].job_sm_percent, percent, __ATOMIC_RELAXED);
	slice_post(step);
	__atomic_add_fetch(&step->limits->generation, 1, __ATOMIC_RELEASE);
}

/* A process of the step that launches kernels of this length into so many streams in turn, until it is
 * told to end or dies, some of them ahead of what is done. What it counts is done. Without a cap it is
 * never far ahead. */
static inline struct worker *worker_start(const struct step *step, unsigned us, unsigned streams)
{
	struct worker *worker =
		mmap(NULL, sizeof(*worker), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CUstream stream[256] = {NULL};
	CUevent done[SLICES_AHEAD];
	CUfunction function;
	pid_t pid;

	CHECK(worker != MAP_FAILED);
	worker->us = us;
	fflush(NULL);
	pid = fork();
	if (pid != 0) {
		worker->pid = pid;
		return worker;
	}
	failures = 0; /* its own */
	alarm(SLICES_WORKS_S);
	step_enter(step);
	cuda_begin(0);
	function = busy_kernel();
	for (unsigned i = 0; i < streams && streams > 1; i++)
		CHECK(cuStreamCreate(&stream[i], 0) == CUDA_SUCCESS);
	for (unsigned i = 0; i < SLICES_AHEAD; i++)
		CHECK(cuEventCreate(&done[i], 2) == CUDA_SUCCESS);
	for (uint32_t i = 0; __atomic_load_n(&worker->end, __ATOMIC_ACQUIRE) == 0 && failures == 0; i++) {
		uint32_t percent = __atomic_load_n(&step->limits->device[0].job_sm_percent, __ATOMIC_RELAXED);

		busy(function, us, stream[i % streams]);
		CHECK_IS(cuEventRecord(done[i % SLICES_AHEAD], stream[i % streams]), CUDA_SUCCESS);
		if ((percent == 0 || percent == 100) && i % 8 == 0)
			CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
		if (i + 1 < SLICES_AHEAD)
			continue;
		CHECK_IS(cuEventSynchronize(done[(i + 1) % SLICES_AHEAD]), CUDA_SUCCESS);
		__atomic_store_n(&worker->launched_ns[(i + 1 - SLICES_AHEAD) % SLICES_LAUNCHES], now_ns(),
				 __ATOMIC_RELAXED);
		__atomic_store_n(&worker->launches, i + 2 - SLICES_AHEAD, __ATOMIC_RELEASE);
	}
	exit(failures == 0 ? 0 : 1);
}

static inline uint32_t launches_of(struct worker *worker)
{
	return __atomic_load_n(&worker->launches, __ATOMIC_ACQUIRE);
}

static inline bool worker_has_ended(const struct worker *worker)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)worker->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == worker->pid;
}

/* False as soon as it has ended, too: there is nothing more to come. */
static inline bool worker_waits_for(struct worker *worker, uint64_t launches, uint64_t at_most_ns)
{
	for (uint64_t since = now_ns(); now_ns() - since < at_most_ns; ) {
		if (launches_of(worker) >= launches)
			return true;
		if (worker_has_ended(worker))
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return false;
}

/* It ends as a program does, with whatever it has in flight. */
static inline void worker_end(struct worker *worker)
{
	int status = -1;

	__atomic_store_n(&worker->end, 1, __ATOMIC_RELEASE);
	CHECK(waitpid(worker->pid, &status, 0) == worker->pid);
	CHECK_IS(status, 0);
	munmap(worker, sizeof(*worker));
}

/* What part of the time they had, in thousandths: from one launch to another of each. */
static inline void shares_of(struct worker *const *worker, unsigned count, uint64_t for_ns, unsigned *got)
{
	uint32_t from[8], to;

	/* They are under way, and what they had saved up is used. */
	for (unsigned i = 0; i < count; i++)
		CHECK(worker_waits_for(worker[i], 8 + 100000 / worker[i]->us, 10000000000u));
	for (unsigned i = 0; i < count; i++)
		from[i] = launches_of(worker[i]);
	nanosleep(&(struct timespec){(time_t)(for_ns / 1000000000u), (long)(for_ns % 1000000000u)}, NULL);
	for (unsigned i = 0; i < count; i++) {
		uint64_t took;

		to = launches_of(worker[i]);
		took = worker[i]->launched_ns[(to - 1) % SLICES_LAUNCHES] -
		       worker[i]->launched_ns[(from[i] - 1) % SLICES_LAUNCHES];
		got[i] = to == from[i]
				 ? 0
				 : (unsigned)((uint64_t)(to - from[i]) * worker[i]->us * 1000000 / took);
	}
}

/* Never above it. Below it when somebody else has kept this machine's cores busy: then again. */
static inline void check_shares(struct worker *const *worker, const unsigned *want, unsigned count,
				uint64_t for_ns, const char *what)
{
	unsigned got[8] = {0};
	bool enough = false;

	for (int try = 0; try < 20 && !enough; try++) {
		shares_of(worker, count, for_ns, got);
		enough = true;
		for (unsigned i = 0; i < count; i++) {
			if (got[i] > want[i] + 20)
				fprintf(stderr, "%s: %u of 1000 instead of %u\n", what, got[i], want[i]),
					failures++;
			enough = enough && got[i] + 20 >= want[i];
		}
	}
	for (unsigned i = 0; i < count && !enough; i++)
		fprintf(stderr, "%s: slice %u has %u of 1000, not %u\n", what, i, got[i], want[i]);
	CHECK(enough);
}

/* That of its threads which has the name; 0: none has. */
static inline pid_t worker_thread(const struct worker *worker, const char *name)
{
	char path[300], is[32];
	pid_t thread = 0;
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)worker->pid);
	tasks = opendir(path);
	while (tasks != NULL && thread == 0 && (entry = readdir(tasks)) != NULL) {
		FILE *comm;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)worker->pid, entry->d_name);
		comm = fopen(path, "r");
		if (comm == NULL)
			continue;
		if (fgets(is, sizeof(is), comm) != NULL && strncmp(is, name, strlen(name)) == 0 &&
		    is[strlen(name)] == '\n')
			thread = (pid_t)atoi(entry->d_name);
		fclose(comm);
	}
	if (tasks != NULL)
		closedir(tasks);
	return thread;
}

#endif
