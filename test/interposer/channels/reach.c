/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A driver that finds another ioctl before ours is led to ours when it begins, however it was linked. It
 * comes by RTLD_DEEPBIND here; behind a guard it is tried in test/guard. */
#include "../helpers/control.h"
#include "pages.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define CLIENT 0xc1d00001u
#define DEVICE 0x5c000001u
#define GROUP 0x5c000010u
#define FD 1000
#define FLAGS (RTLD_LOCAL | RTLD_DEEPBIND)

typedef int calling_function(int fd, unsigned long request, void *argument);

static struct step step;
static struct vgpu_groups *page;
static calling_function *calling;

/* A job with a page of groups, and a driver. */
static void begin(const char *driver, int flags)
{
	char path[4096];
	void *handle;

	gpus(0);
	step = step_with_pages();
	page = groups_make(&step);
	snprintf(path, sizeof(path), "%s/../test-interposer/helpers/%s", getenv("VGPU_TEST_SIM"), driver);
	handle = dlopen(path, flags);
	calling = handle == NULL ? NULL : (calling_function *)dlsym(handle, "calling");
	CHECK(calling != NULL);
	if (calling == NULL)
		exit(1);
}

static const struct vgpu_groups_process *place(void)
{
	uint32_t slot = 0;

	while (slot < VGPU_MAX_PROCS - 1 &&
	       (step.ledger->slot[slot].state != 1 || step.ledger->slot[slot].pid != getpid()))
		slot++;
	return &page->process[slot];
}

static int make(uint32_t parent, uint32_t object, uint32_t class, void *params)
{
	struct made made = {CLIENT, parent, object, class, (uintptr_t)params, {0}};

	return calling(FD, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2B, 48), &made);
}

static void make_group(uint32_t object)
{
	uint32_t device[14] = {2}, group[5] = {0, 0, 0, 1};

	CHECK_IS(make(CLIENT, DEVICE, 0x80, device), 0);
	CHECK_IS(make(DEVICE, object, 0xA06C, group), 0);
	CHECK_IS(make(object, object + 1, 0xC86F, NULL), 0);
}

static void is_written_down(void)
{
	int waiting = 0, fd[2];

	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	CHECK(place()->count == 0 && place()->more == 0);
	make_group(GROUP);
	CHECK(place()->count == 1 && place()->more == 0 && place()->pid == getpid());
	CHECK(place()->group[0].group == GROUP && place()->group[0].channel_count == 1);
	/* Each call has gone on, once. */
	CHECK_IS(control_calls, 3);
	control_fails = 1;
	CHECK(make(DEVICE, GROUP + 9, 0xA06C, NULL) == -1 && errno == EIO);
	control_fails = 0;
	CHECK_IS(pipe(fd), 0);
	CHECK(write(fd[1], "abc", 3) == 3 && calling(fd[0], FIONREAD, &waiting) == 0 && waiting == 3);
	/* Begun again, all stays as it is. */
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	make_group(GROUP + 10);
	CHECK(place()->count == 2 && place()->more == 0 && control_calls == 7);
}

static void a_driver_that_has_not_called_yet(void)
{
	begin("calling_driver.so", FLAGS | RTLD_LAZY);
	is_written_down();
}

static void a_driver_that_has_called_already(void)
{
	int waiting;

	begin("calling_driver.so", FLAGS | RTLD_LAZY);
	CHECK_IS(calling(-1, FIONREAD, &waiting), -1);
	is_written_down();
}

static void a_driver_whose_table_is_read_only(void)
{
	begin("calling_driver_now.so", FLAGS | RTLD_LAZY);
	is_written_down();
}

static void a_driver_that_finds_ours_by_itself(void)
{
	begin("calling_driver_now.so", RTLD_LAZY | RTLD_LOCAL);
	is_written_down();
}

static void a_driver_that_calls_in_another_way(void)
{
	begin("calling_driver_silent.so", FLAGS | RTLD_LAZY);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	CHECK(place()->count == 0 && place()->more == 1 && place()->pid == getpid());
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	CHECK_IS(place()->more, 1);
}

#define THREADS 8

static void *start(void *number)
{
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	make_group(GROUP + 10 * (1 + (uint32_t)(uintptr_t)number));
	return NULL;
}

static void threads_begin_together(void)
{
	pthread_t thread[THREADS];

	begin("calling_driver_now.so", FLAGS | RTLD_LAZY);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_IS(pthread_create(&thread[i], NULL, start, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK(place()->count == THREADS && place()->more == 0);
}

static void a_forked_child_has_it_as_well(void)
{
	int status;
	pid_t pid;

	begin("calling_driver_now.so", FLAGS | RTLD_LAZY);
	is_written_down();
	pid = fork();
	if (pid == 0) {
		CHECK_IS(cuInit(0), CUDA_SUCCESS);
		make_group(GROUP);
		CHECK(place()->count == 1 && place()->more == 0 && place()->pid == getpid());
		_exit(failures);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
	CASE(a_driver_that_has_not_called_yet);
	CASE(a_driver_that_has_called_already);
	CASE(a_driver_whose_table_is_read_only);
	CASE(a_driver_that_finds_ours_by_itself);
	CASE(a_driver_that_calls_in_another_way);
	CASE(threads_begin_together);
	CASE(a_forked_child_has_it_as_well);
	return summary();
}
