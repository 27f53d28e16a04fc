/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A step's folder with anything in it: it is believed exactly when it is whole, and what is believed
 * is never exceeded. */
#include "fuzz.h"
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define JOB 7u

static struct step step;
static struct {
	uint64_t believed, refused, unlimited;
} *seen;

static const char *in_folder(const char *name)
{
	static char path[4][700];
	static int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", step.folder, name);
	return path[turn];
}

/* ---- what may happen to a file ---- */

static void some_bytes(struct fuzz *f, const char *path)
{
	int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK);

	for (uint32_t i = fuzz_below(f, 40); fd >= 0 && i > 0; i--) {
		/* Headers are where a change matters. */
		off_t at = fuzz_below(f, 2) ? fuzz_below(f, 80) : fuzz_below(f, sizeof(struct vgpu_limits));
		uint64_t word = fuzz_number(f);

		if (pwrite(fd, &word, 1 + fuzz_below(f, 8), at) < 0)
			break;
	}
	close(fd);
}

static void only_garbage(struct fuzz *f, const char *path)
{
	static unsigned char page[sizeof(struct vgpu_ledger)];
	int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK);

	fuzz_bytes(f, page, sizeof(page));
	if (fd >= 0 && pwrite(fd, page, sizeof(page), 0) < 0)
		failures++;
	close(fd);
}

static void another_kind(struct fuzz *f, const char *path)
{
	char aside[800];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	snprintf(aside, sizeof(aside), "%s.aside", path);
	remove(aside);
	if (rename(path, aside) != 0)
		return;
	switch (fuzz_below(f, 6)) {
	case 0: CHECK_IS(symlink(aside, path), 0); break;
	case 1: CHECK_IS(mkfifo(path, 0600), 0); break;
	case 2: CHECK_IS(mkdir(path, 0700), 0); break;
	case 3: /* nothing is wrong with that, but of folders there are no links */
		if (link(aside, path) != 0)
			return;
		break;
	case 4: break;
	default:
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (strlen(path) < sizeof(address.sun_path)) {
			strcpy(address.sun_path, path);
			CHECK_IS(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
		}
		close(fd);
	}
}

static void change(struct fuzz *f, const char *path, size_t size)
{
	struct stat st;

	switch (fuzz_below(f, 6)) {
	case 0: some_bytes(f, path); break;
	case 1: only_garbage(f, path); break;
	case 2:
		if (lstat(path, &st) == 0 && S_ISREG(st.st_mode))
			CHECK_IS(truncate(path, fuzz_below(f, 2) ? (off_t)size - 1
								 : fuzz_below(f, 3 * (uint32_t)size)),
				 0);
		break;
	case 3:
		if (lstat(path, &st) == 0 && !S_ISLNK(st.st_mode))
			chmod(path, fuzz_below(f, 2) ? 0644 : fuzz_below(f, 01000));
		break;
	case 4:
		if (lstat(path, &st) == 0 && geteuid() == 0)
			CHECK_IS(lchown(path, fuzz_below(f, 2) ? 0 : 65534, (gid_t)-1), 0);
		break;
	default: another_kind(f, path);
	}
}

/* ---- what must come of it, said in another way than the library does ---- */

static bool is_roots_alone(const struct stat *st)
{
	return (st->st_uid == 0 || st->st_uid == geteuid()) && (st->st_mode & 022) == 0;
}

static bool read_page(const char *name, void *to, size_t size, struct stat *st)
{
	int fd;
	bool ok;

	/* The ledger is a link to where its owner may have it, as root's folder says; the limits are not. */
	if ((strcmp(name, "ledger") == 0 ? stat : lstat)(in_folder(name), st) != 0 || !S_ISREG(st->st_mode))
		return false;
	fd = open(in_folder(name), O_RDONLY);
	ok = fd >= 0 && pread(fd, to, size, 0) == (ssize_t)size;
	close(fd);
	return ok;
}

static bool is_sound(struct vgpu_limits *limits, bool *ledger_is_sound)
{
	static struct vgpu_ledger ledger;
	struct stat st;

	if (lstat(step.folder, &st) != 0 || !S_ISDIR(st.st_mode) || !is_roots_alone(&st) ||
	    !read_page("limits", limits, VGPU_LIMITS_LEAST, &st) || !is_roots_alone(&st) ||
	    limits->magic != VGPU_LIMITS_MAGIC || limits->layout_version != VGPU_LAYOUT_VERSION ||
	    limits->device_count > VGPU_MAX_DEVICES || limits->job_id != JOB ||
	    (limits->uid != getuid() && getuid() != 0))
		return false;
	*ledger_is_sound = read_page("ledger", &ledger, sizeof(ledger), &st) && (st.st_mode & 022) == 0 &&
			   (is_roots_alone(&st) || st.st_uid == limits->uid) &&
			   st.st_ino == limits->ledger_inode && st.st_dev == limits->ledger_device &&
			   ledger.magic == VGPU_LEDGER_MAGIC &&
			   ledger.layout_version == VGPU_LAYOUT_VERSION && ledger.job_id == JOB;
	return true;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* All that can be had is had, and it is not more than the page says. */
static void check_limit(const struct vgpu_limits *limits)
{
	uint64_t step_bytes = 0, job_bytes = 0;
	size_t own = 0, free_bytes, total_bytes;
	CUcontext context;
	CUdeviceptr a;

	for (uint32_t d = 0; d < limits->device_count; d++) {
		if (strncmp(limits->device[d].uuid, UUID0, VGPU_UUID_BYTES) == 0) {
			step_bytes = limits->device[d].step_mem_bytes;
			job_bytes = limits->device[d].job_mem_bytes;
			break;
		}
	}
	if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS)
		return;
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK(free_bytes <= total_bytes && total_bytes <= step_bytes);
	for (uint64_t bytes = 1024 * MIB; bytes >= 2 * MIB; bytes /= 2) {
		while (cuMemAlloc_v2(&a, bytes) == CUDA_SUCCESS)
			;
	}
	CHECK_IS(cuSimHeld(0, &own, NULL), CUDA_SUCCESS);
	CHECK(own <= least(step_bytes, job_bytes));
	cuMemGetInfo_v2(&free_bytes, &total_bytes);
	CHECK(free_bytes < 2 * MIB || free_bytes <= total_bytes);
}

static void remove_step(void)
{
	char path[700];
	static const char *const names[] = {"limits", "limits.aside", "ledger", "ledger.aside"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		remove(in_folder(names[i]));
	snprintf(path, sizeof(path), "%s/../../ledger", step.folder);
	remove(path);
	remove(step.folder);
}

/* What CUDA says: a page that is believed may still name a GPU that is not there, and then the job has
 * none. */
static CUresult right_answer(const struct vgpu_limits *limits, bool is_ledger_sound)
{
	if (!is_ledger_sound)
		return limits->flags & VGPU_FAIL_OPEN ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
	return limits->device_count > 0 && strncmp(limits->device[0].uuid, UUID0, VGPU_UUID_BYTES) == 0
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_NO_DEVICE;
}

static void any_folder(struct fuzz *f)
{
	char path[sizeof(step.folder)];
	bool is_ledger_sound = false, sound, other_path = false;
	struct vgpu_limits limits;
	CUresult result;

	step = step_make(JOB, 0, 64 + fuzz_below(f, 1000), 64 + fuzz_below(f, 1000));
	step.limits->flags = fuzz_below(f, 4) == 0 ? VGPU_FAIL_OPEN : 0;
	for (uint32_t i = fuzz_below(f, 4); i > 0; i--) {
		switch (fuzz_below(f, 8)) {
		case 0: chmod(step.folder, fuzz_below(f, 2) ? 0755 : fuzz_below(f, 01000)); break;
		case 1: other_path = fuzz_below(f, 4) == 0; break;
		case 2: case 3: change(f, in_folder("ledger"), sizeof(struct vgpu_ledger)); break;
		default: change(f, in_folder("limits"), sizeof(struct vgpu_limits));
		}
	}
	sound = is_sound(&limits, &is_ledger_sound);
	strcpy(path, step.folder);
	if (other_path) {
		path[fuzz_below(f, (uint32_t)strlen(path))] = (char)fuzz_next(f);
		setenv(VGPU_STEP_DIR_ENV, path, 1);
		sound = sound && strcmp(path, step.folder) == 0;
	}
	library_quiet();
	result = cuInit(0);
	/* Others than root cannot open what they may not read. */
	if (geteuid() == 0 || result == CUDA_SUCCESS)
		CHECK_IS(result, sound ? right_answer(&limits, is_ledger_sound) : CUDA_ERROR_NOT_PERMITTED);
	if (result == CUDA_SUCCESS && is_ledger_sound)
		check_limit(&limits);
	__atomic_add_fetch(result != CUDA_SUCCESS ? &seen->refused
			   : is_ledger_sound	  ? &seen->believed
						  : &seen->unlimited,
			   1, __ATOMIC_RELAXED);
	chmod(step.folder, 0755);
	remove_step();
}

static void a_folder_is_believed_when_it_is_whole(void)
{
	fuzz_rounds(400, any_folder);
	if (getenv("VGPU_FUZZ_ROUNDS") != NULL)
		return;
	CHECK(seen->believed > 50);
	CHECK(seen->refused > 50);
	CHECK(seen->unlimited > 0);
}

/* ---- root changes the page while it is mapped ---- */

static uint32_t stop;

static void *keep_changing(void *argument)
{
	struct fuzz *f = argument;
	uint32_t *word = (uint32_t *)step.limits;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		for (int i = 0; i < 100; i++)
			__atomic_store_n(&word[fuzz_below(f, sizeof(*step.limits) / 4)],
					 (uint32_t)fuzz_number(f), __ATOMIC_RELAXED);
	}
	return NULL;
}

static void use_everything(struct fuzz *f)
{
	nvmlProcessInfo_v2_t list[8];
	size_t free_bytes, total_bytes;
	unsigned int count = 8;
	nvmlDevice_t device;
	CUdeviceptr a;

	/* Smaller ones share granules, and the driver's figure would not be ours. */
	if (cuMemAlloc_v2(&a, 2 * MIB + fuzz_below(f, 200 * MIB)) == CUDA_SUCCESS && fuzz_below(f, 4))
		CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	if (nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS)
		nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list);
	nvmlDeviceGetCount_v2(&count);
	CHECK(count <= VGPU_MAX_DEVICES);
}

static void a_page_that_changes(struct fuzz *f)
{
	struct fuzz other = {fuzz_next(f)};
	size_t own, free_bytes, total_bytes;
	struct vgpu_limits was;
	pthread_t thread;
	CUdeviceptr a;

	step = step_make(JOB, 0, 100, 100);
	library_quiet();
	cuda_begin(0);
	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
	was = *step.limits;
	CHECK_IS(pthread_create(&thread, NULL, keep_changing, &other), 0);
	for (int i = 0; i < 100; i++)
		use_everything(f);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	*step.limits = was;
	/* What root says last holds, whatever was granted before. */
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(cuSimHeld(0, &own, NULL), CUDA_SUCCESS);
	CHECK_IS(total_bytes, 100 * MIB);
	CHECK_IS(free_bytes, own < 100 * MIB ? 100 * MIB - own : 0);
	CHECK_IS(cuMemAlloc_v2(&a, own < 100 * MIB ? 102 * MIB - own : 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	remove_step();
}

static void a_page_may_change_under_a_running_program(void)
{
	fuzz_rounds(30, a_page_that_changes);
}

int main(void)
{
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	gpus(0);
	CASE(a_folder_is_believed_when_it_is_whole);
	CASE(a_page_may_change_under_a_running_program);
	return summary();
}
