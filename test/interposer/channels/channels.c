/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a program's libcuda asks of the driver's control device stands on its job's page of groups. The calls
 * are made here, as libcuda makes them; what answers is helpers/control.c. */
#include "asks.h"
#include "pages.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

static struct step step;
static struct vgpu_groups *page;

/* A job with a page of groups, as the prolog makes it. */
static void begin_job(void)
{
	gpus(0);
	step = step_with_pages();
	page = groups_make(&step);
}

static void begin(void)
{
	begin_job();
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
}

static uint32_t slot_of(pid_t pid)
{
	uint32_t slot = 0;

	while (slot < VGPU_MAX_PROCS - 1 &&
	       (step.ledger->slot[slot].state != 1 || step.ledger->slot[slot].pid != pid))
		slot++;
	return slot;
}

static const struct vgpu_groups_process *place(void)
{
	return &page->process[slot_of(getpid())];
}

static void a_context_is_written_down(void)
{
	for (how = LONG; how < HOWS; how++) {
		const struct vgpu_groups_process *mine;
		const struct vgpu_channel_group *group;

		if (how == LONG)
			begin();
		mine = place();
		make_device(3);
		CHECK_IS(make_group(DEVICE, GROUP + how, 1), 0);
		CHECK_IS(make_group(DEVICE, GROUP + 100, 9), 0);
		CHECK_IS(make(CLIENT, GROUP + how, 0x5c00001c, 0xC86F, NULL), 0);
		CHECK_IS(make(CLIENT, GROUP + how, 0x5c00001d, 0xC96F, NULL), 0);
		CHECK_IS(make(CLIENT, GROUP + how, 0x5c00001e, 0xC8B5, NULL), 0); /* HOPPER_DMA_COPY_A */
		CHECK_IS(mine->pid, getpid());
		CHECK_IS(mine->start_ticks, step.ledger->slot[slot_of(getpid())].start_ticks);
		CHECK_IS(mine->pidns, step.ledger->slot[slot_of(getpid())].pidns);
		CHECK_IS(mine->count, 1);
		CHECK_IS(mine->more, 0);
		CHECK_IS(mine->sequence % 2, 0);
		group = &mine->group[0];
		CHECK(group->client == CLIENT && group->device == DEVICE && group->group == GROUP + how);
		CHECK(group->engine == 1 && group->device_instance == 3 && group->fd == FD);
		CHECK(group->subdevice == SUBDEVICE && group->channel_count == 2);
		CHECK(group->channel[0] == 0x5c00001c && group->channel[1] == 0x5c00001d);
		CHECK_IS(drop(GROUP + how), 0);
		CHECK_IS(mine->count, 0);
	}
}

/* A user limits the files that his programs write, and the kernel would kill this one for a write. Root is
 * woken all the same. */
static void it_is_written_down_where_no_file_may_be_written(void)
{
	struct rlimit none = {0, 0};
	char path[600], event[600];
	int woken = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	begin();
	snprintf(path, sizeof(path), "%s/" VGPU_GROUPS_FILE, step.limits->pages_dir);
	CHECK(inotify_add_watch(woken, path, IN_MODIFY) > 0);
	CHECK_IS(setrlimit(RLIMIT_FSIZE, &none), 0);
	make_device(3);
	CHECK_IS(make_group(DEVICE, GROUP, 1), 0);
	CHECK_IS(place()->pid, getpid());
	CHECK_IS(place()->count, 1);
	CHECK(place()->group[0].group == GROUP);
	CHECK(read(woken, event, sizeof(event)) > 0);
}

static void what_fails_is_not_written_down(void)
{
	begin();
	make_device(0);
	status = 0x1a;
	for (how = LONG; how < HOWS; how++)
		CHECK_IS(make_group(DEVICE, GROUP, 1), 0);
	CHECK_IS(place()->count, 0);
	how = LONG;
	status = 0;
	control_fails = 1;
	errno = 0;
	CHECK_IS(make_group(DEVICE, GROUP, 1), -1);
	CHECK_IS(errno, EIO);
	CHECK_IS(place()->count, 0);
	control_fails = 0;
	CHECK_IS(make_group(DEVICE, GROUP, 1), 0);
	status = 0x1a;
	CHECK_IS(drop(GROUP), 0);
	CHECK_IS(place()->count, 1);
	/* Sizes and places that no driver takes. */
	status = 0;
	CHECK_IS(ioctl(FD, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2B, 40), page), 0);
	CHECK_IS(ioctl(FD, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x29, 16), NULL), 0);
	CHECK_IS(ioctl(FD, _IOWR('F', 211, struct by_address), &(struct by_address){0x2B, 48, 0}), 0);
	CHECK_IS(place()->count, 1);
}

static void the_thirty_third_is_one_more(void)
{
	begin();
	make_device(0);
	for (uint32_t i = 0; i <= VGPU_MAX_GROUPS; i++)
		CHECK_IS(make_group(DEVICE, GROUP + i, 1), 0);
	CHECK_IS(place()->count, VGPU_MAX_GROUPS);
	CHECK_IS(place()->more, 1);
	CHECK_IS(drop(GROUP), 0);
	CHECK_IS(place()->count, VGPU_MAX_GROUPS);
	CHECK_IS(place()->more, 0);
	CHECK_IS(place()->group[VGPU_MAX_GROUPS - 1].group, GROUP + VGPU_MAX_GROUPS);
	CHECK_IS(drop(CLIENT), 0);
	CHECK_IS(place()->count, 0);
}

/* Not of a program without limits, and not before it has them. */
static void nothing_is_noted_outside_a_slice(void)
{
	unsigned calls = control_calls;

	begin_job();
	make_device(0);
	CHECK_IS(make_group(DEVICE, GROUP, 1), 0);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	CHECK_IS(place()->count, 0);
	CHECK_IS(control_calls - calls, 4);
}

static void without_a_page_a_program_runs(void)
{
	char path[600];

	begin_job();
	snprintf(path, sizeof(path), "%s/" VGPU_GROUPS_FILE, step.limits->pages_dir);
	page->job_id++; /* another job's */
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	make_device(0);
	CHECK_IS(make_group(DEVICE, GROUP, 1), 0);
	CHECK_IS(place()->pid, 0);
	CHECK_IS(unlink(path), 0);
	errno = 77;
	CHECK_IS(make_group(DEVICE, GROUP + 1, 1), 0);
	CHECK_IS(errno, 77);
	CHECK_IS(mkfifo(path, 0600), 0);
	CHECK_IS(make_group(DEVICE, GROUP + 2, 1), 0);
	CHECK_IS(unlink(path), 0);
	/* All is there as soon as there is a page. */
	page = groups_make(&step);
	CHECK_IS(make_group(DEVICE, GROUP + 3, 1), 0);
	CHECK_IS(place()->count, 4);
}

static void a_forked_child_begins_anew(void)
{
	const struct vgpu_groups_process *parents;
	int child_status;
	pid_t pid;

	begin();
	make_device(0);
	CHECK_IS(make_group(DEVICE, GROUP, 1), 0);
	parents = place();
	pid = fork();
	if (pid == 0) {
		/* What its parent's libcuda left it, before it begins itself. */
		CHECK_IS(drop(GROUP), 0);
		/* Which fails, as its parent's libcuda is not made for that. */
		cuInit(0);
		CHECK(place() != parents && place()->count == 0 && place()->pid == 0);
		CHECK_IS(make_group(DEVICE, GROUP + 1, 1), 0);
		CHECK(place()->count == 1 && place()->pid == getpid());
		CHECK_IS(place()->group[0].group, GROUP + 1);
		_exit(failures);
	}
	CHECK(waitpid(pid, &child_status, 0) == pid && child_status == 0);
	CHECK(parents->count == 1 && parents->group[0].group == GROUP);
}

/* The next program of the process has its place, and nothing of what was there. */
static int after_exec(void)
{
	step = step_of_environment();
	page = groups_make(&step);
	CHECK_IS(place()->count, 1);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	CHECK_IS(place()->count, 0);
	CHECK_IS(place()->pid, getpid());
	make_device(0);
	CHECK_IS(make_group(DEVICE, GROUP + 1, 1), 0);
	CHECK(place()->count == 1 && place()->group[0].group == GROUP + 1);
	return failures != 0;
}

static void a_program_that_is_executed_begins_anew(void)
{
	int child_status;
	pid_t pid;

	begin_job();
	pid = fork();
	if (pid == 0) {
		CHECK_IS(cuInit(0), CUDA_SUCCESS);
		make_device(0);
		CHECK_IS(make_group(DEVICE, GROUP, 1), 0);
		execl("/proc/self/exe", "self", "after exec", NULL);
		_exit(97);
	}
	CHECK(waitpid(pid, &child_status, 0) == pid && child_status == 0);
}

#define THREADS 6
#define ROUNDS 2000

static void *make_and_drop(void *number)
{
	uint32_t mine = GROUP + 1000 * (1 + (uint32_t)(uintptr_t)number);

	for (uint32_t i = 0; i < ROUNDS; i++) {
		make_group(DEVICE, mine + i % 3, 1);
		make(CLIENT, mine + i % 3, mine + 500 + i % 3, 0xC86F, NULL);
		if (i + 1 < ROUNDS)
			drop(mine + i % 3);
	}
	return NULL;
}

static void threads_make_groups_together(void)
{
	pthread_t thread[THREADS];

	begin();
	make_device(0);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_IS(pthread_create(&thread[i], NULL, make_and_drop, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK_IS(place()->count, THREADS);
	CHECK_IS(place()->more, 0);
	CHECK_IS(place()->sequence % 2, 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_IS(place()->group[i].channel_count, 1);
}

static uint32_t handled;

static void on_alarm(int signal)
{
	int before = errno;

	(void)signal;
	make_group(DEVICE, GROUP + 900000, 1);
	make(CLIENT, GROUP + 900000, GROUP + 900001, 0xC86F, NULL);
	drop(GROUP + 900000);
	__atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
	errno = before;
}

/* The handler comes while its own thread is at it. */
static void a_signal_handler_never_waits(void)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
	uint64_t until;

	begin();
	make_device(0);
	CHECK_IS(sigaction(SIGALRM, &action, NULL), 0);
	CHECK_IS(setitimer(ITIMER_REAL, &often, NULL), 0);
	for (until = now_ns() + 5000000000u; handled < 2000 && now_ns() < until;)
		make_and_drop(NULL);
	CHECK_IS(setitimer(ITIMER_REAL, &never, NULL), 0);
	CHECK(handled >= 100);
	CHECK_IS(drop(GROUP + 999999), 0);
	CHECK_IS(place()->more, 0);
	CHECK_IS(place()->count, 1);
}

static void other_calls_pass(void)
{
	int fd[2], waiting = 0;

	for (int attached = 0; attached < 2; attached++) {
		if (attached)
			begin();
		CHECK_IS(pipe(fd), 0);
		CHECK_IS(write(fd[1], "abc", 3), 3);
		errno = 77;
		CHECK_IS(ioctl(fd[0], FIONREAD, &waiting), 0);
		CHECK_IS(waiting, 3);
		CHECK_IS(errno, 77);
		CHECK_IS(ioctl(fd[0], FIOCLEX), 0); /* without a third argument */
		CHECK_IS(fcntl(fd[0], F_GETFD), FD_CLOEXEC);
		close(fd[0]);
		close(fd[1]);
		CHECK_IS(ioctl(fd[0], FIONREAD, &waiting), -1);
		CHECK_IS(errno, EBADF);
		CHECK_IS(ioctl(FD, _IOWR('F', 0x2A, struct made), NULL), 0);
		CHECK_IS(errno, EBADF);
	}
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		return after_exec();
	CASE(a_context_is_written_down);
	CASE(it_is_written_down_where_no_file_may_be_written);
	CASE(what_fails_is_not_written_down);
	CASE(the_thirty_third_is_one_more);
	CASE(nothing_is_noted_outside_a_slice);
	CASE(without_a_page_a_program_runs);
	CASE(a_forked_child_begins_anew);
	CASE(a_program_that_is_executed_begins_anew);
	CASE(threads_make_groups_together);
	CASE(a_signal_handler_never_waits);
	CASE(other_calls_pass);
	return summary();
}
