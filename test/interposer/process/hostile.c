/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What is not to be believed is not believed, and garbage hurts nobody but who wrote it. */
#include "harness.h"
#include "refused.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct step step;
static char path[600];

static const char *file(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", step.folder, name);
	return path;
}

static void begin(void)
{
	gpus(0);
	step = step_make(1000 + (uint32_t)getpid(), 0, 100, 100);
}

static void without_a_step_cuda_is_refused(void)
{
	begin();
	unsetenv(VGPU_STEP_DIR_ENV);
	check_refused("not a step with a GPU slice");
}

static void a_missing_page_is_refused(void)
{
	begin();
	unlink(file("limits"));
	check_refused("no limits page");
}

static void a_link_is_refused(void)
{
	char other[700];

	begin();
	snprintf(other, sizeof(other), "%s/elsewhere", step.folder);
	rename(file("limits"), other);
	CHECK_IS(symlink(other, file("limits")), 0);
	check_refused("cannot be opened");
}

static void a_fifo_is_refused(void)
{
	begin();
	unlink(file("limits"));
	CHECK_IS(mkfifo(file("limits"), 0600), 0);
	check_refused("not root's alone");
}

static void another_owners_page_is_refused(void)
{
	if (geteuid() != 0) {
		printf("SKIP another_owners_page_is_refused: only root can give a file away\n");
		return;
	}
	begin();
	CHECK_IS(chown(file("limits"), 65534, 65534), 0);
	check_refused("not root's alone");
}

static void a_page_that_others_write_is_refused(void)
{
	begin();
	CHECK_IS(chmod(file("limits"), 0666), 0);
	check_refused("not root's alone");
}

static void a_folder_that_others_write_is_refused(void)
{
	begin();
	CHECK_IS(chmod(step.folder, 0777), 0);
	check_refused("folder is not root's alone");
}

static void wrong_magic_is_refused(void)
{
	begin();
	step.limits->magic ^= 1;
	check_refused("another version");
}

static void wrong_version_is_refused(void)
{
	begin();
	step.limits->layout_version++;
	check_refused("another version");
}

static void too_many_devices_are_refused(void)
{
	begin();
	step.limits->device_count = VGPU_MAX_DEVICES + 1;
	check_refused("another version");
}

static void a_short_page_is_refused(void)
{
	begin();
	CHECK_IS(truncate(file("limits"), VGPU_LIMITS_LEAST - 1), 0);
	check_refused("too short");
}

static void another_jobs_page_is_refused(void)
{
	begin();
	step.limits->job_id++;
	check_refused("another job's");
}

static void another_users_page_is_refused(void)
{
	if (geteuid() != 0) {
		printf("SKIP another_users_page_is_refused: only root can become another user\n");
		return;
	}
	begin();
	CHECK_IS(chmod(file("limits"), 0644), 0);
	stderr_catch();
	CHECK_IS(setresuid(65534, 65534, 65534), 0);
	CHECK_IS(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
	CHECK(strstr(stderr_caught(), "another user's") != NULL);
}

static void other_paths_are_refused(void)
{
	static const char *const bad[] = {"",
					  "relative/jobs/1/steps/0",
					  "/tmp",
					  "/tmp/steps/0",
					  "/jobs/x1/steps/0",
					  "/jobs/1/steps/",
					  "/jobs/1x/steps/0",
					  "/tmp/1/steps/0",
					  "/1/steps/0",
					  "/xjobs/1/steps/0",
					  "/etc/passwd",
					  "/",
					  "jobs/1/steps/0"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		pid_t pid = fork();
		int status = -1;

		if (pid == 0) {
			setenv(VGPU_STEP_DIR_ENV, bad[i], 1);
			check_refused("is not a step's folder");
			_exit(failures);
		}
		waitpid(pid, &status, 0);
		if (status != 0)
			fprintf(stderr, "with %s\n", bad[i]);
		CHECK_IS(status, 0);
	}
}

static void a_bad_ledger_is_refused(void)
{
	begin();
	step.ledger->magic = 0;
	check_refused("damaged");
}

static void another_jobs_ledger_is_refused(void)
{
	begin();
	step.ledger->job_id++;
	check_refused("another job's");
}

static void a_ledger_that_the_page_does_not_name_is_refused(void)
{
	begin();
	step.limits->ledger_inode++;
	check_refused("not the job's alone");
}

static void a_page_that_names_no_ledger_is_refused(void)
{
	begin();
	step.limits->ledger_device = step.limits->ledger_inode = 0;
	check_refused("not the job's alone");
}

static void a_short_ledger_is_refused(void)
{
	begin();
	CHECK_IS(truncate(file("ledger"), sizeof(struct vgpu_ledger) - 1), 0);
	check_refused("ledger is too short");
}

static void a_missing_ledger_is_refused(void)
{
	begin();
	unlink(file("ledger"));
	check_refused("ledger cannot be opened");
}

static void a_bad_ledger_lets_run_when_root_says_so(void)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr a;

	begin();
	step.ledger->magic = 0;
	step.limits->flags = VGPU_FAIL_OPEN;
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 1000 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK(total_bytes > 1000 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
}

static void the_users_environment_changes_nothing(void)
{
	static const char *const names[] = {
		"VGPU_MEM",	"VGPU_CORES",	 "VGPU_FAIL_OPEN",	     "VGPU_LIMITS",
		"VGPU_DISABLE", "VGPU_SELF_DIR", "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DISABLE_CONTROL"};
	size_t free_bytes, total_bytes;
	CUdeviceptr a;

	begin();
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		setenv(names[i], "1", 1);
	setenv("VGPU_MEM", "4000", 1);
	cuda_begin(0);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(total_bytes, 100 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, 101 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	/* Once found, the limits stay found. */
	setenv(VGPU_STEP_DIR_ENV, "/nonexistent", 1);
	CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
}

/* Other garbage: account/fuzz_ledger. */
static void a_ledger_of_zeros_or_ones_harms_nobody(void)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr a, b;

	begin();
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
	for (int round = 0; round < 2; round++) {
		memset(step.ledger, round == 0 ? 0 : 0xff, sizeof(*step.ledger));
		CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
		CHECK_IS(total_bytes, 100 * MIB);
		cuMemAlloc_v2(&b, 10 * MIB);
	}
	/* After zeros the process finds its own part again. */
	memset(step.ledger, 0, sizeof(*step.ledger));
	CHECK_IS(cuMemAlloc_v2(&b, 95 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
}

static CUcontext of_threads;

static void *allocate_and_free(void *seed)
{
	uint32_t random = (uint32_t)(uintptr_t)seed;
	size_t own;
	CUdeviceptr a;

	CHECK_IS(cuCtxSetCurrent(of_threads), CUDA_SUCCESS);
	for (int i = 0; i < 100000; i++) {
		CUresult result;

		__atomic_store_n(&step.ledger->lock, 0, __ATOMIC_SEQ_CST);
		random = random * 1664525u + 1013904223u;
		result = cuMemAlloc_v2(&a, (2 + 2 * (random >> 28)) * MIB);
		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_IS(cuSimHeld(0, &own, NULL), CUDA_SUCCESS);
		CHECK(own <= 100 * MIB);
		if (result == CUDA_SUCCESS)
			CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	}
	return NULL;
}

static void threads_count_right_while_the_lock_is_robbed(void)
{
	pthread_t thread[4];
	CUdeviceptr a;

	library_quiet();
	begin();
	cuda_begin(0);
	CHECK_IS(cuCtxGetCurrent(&of_threads), CUDA_SUCCESS);
	for (uintptr_t i = 0; i < 4; i++)
		CHECK_IS(pthread_create(&thread[i], NULL, allocate_and_free, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		CHECK_IS(pthread_join(thread[i], NULL), 0);
	/* Nothing was counted that is not there, nor forgotten. */
	CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
	CHECK_IS(step_slots_bytes(&step), 100 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(step_slots_bytes(&step), 0);
	CHECK_IS(step.ledger->used_bytes[0], 0);
}

static void the_steps_own_folder_comes_first(void)
{
	size_t free_bytes, total_bytes;
	struct step other;

	if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0) {
		printf("SKIP the_steps_own_folder_comes_first: no private mounts here\n");
		return;
	}
	begin();
	other = step_make(77, 0, 4000, 4000); /* what the environment names */
	CHECK_IS(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_IS(mount("tmpfs", "/run", "tmpfs", 0, "mode=755"), 0);
	mkdir("/run/slurm-vgpu", 0755);
	mkdir(VGPU_SELF_DIR, 0755);
	if (fork() == 0) { /* without a page there, the environment counts */
		cuda_begin(0);
		_exit(cuDeviceTotalMem_v2(&total_bytes, 0) == CUDA_SUCCESS && total_bytes == 4000 * MIB ? 0
													: 1);
	}
	{
		int status = -1;

		wait(&status);
		CHECK_IS(status, 0);
	}
	CHECK_IS(mount(step.folder, VGPU_SELF_DIR, NULL, MS_BIND, NULL), 0);
	(void)other;
	cuda_begin(0);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(total_bytes, 100 * MIB);
}

int main(void)
{
	gpus(0);
	CASE(without_a_step_cuda_is_refused);
	CASE(a_missing_page_is_refused);
	CASE(a_link_is_refused);
	CASE(a_fifo_is_refused);
	CASE(another_owners_page_is_refused);
	CASE(a_page_that_others_write_is_refused);
	CASE(a_folder_that_others_write_is_refused);
	CASE(wrong_magic_is_refused);
	CASE(wrong_version_is_refused);
	CASE(too_many_devices_are_refused);
	CASE(a_short_page_is_refused);
	CASE(another_jobs_page_is_refused);
	CASE(another_users_page_is_refused);
	CASE(other_paths_are_refused);
	CASE(a_bad_ledger_is_refused);
	CASE(another_jobs_ledger_is_refused);
	CASE(a_ledger_that_the_page_does_not_name_is_refused);
	CASE(a_page_that_names_no_ledger_is_refused);
	CASE(a_short_ledger_is_refused);
	CASE(a_missing_ledger_is_refused);
	CASE(a_bad_ledger_lets_run_when_root_says_so);
	CASE(the_users_environment_changes_nothing);
	CASE(a_ledger_of_zeros_or_ones_harms_nobody);
	CASE(threads_count_right_while_the_lock_is_robbed);
	CASE(the_steps_own_folder_comes_first);
	return summary();
}
