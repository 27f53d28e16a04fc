/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include "base/libc.h"
#include "tuning.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From the C library, whose versions have them in different places. */
bool vgpu_thread_start(void *(*run)(void *), void *argument)
{
	const struct vgpu_libc *libc = vgpu_libc();
	__typeof__(pthread_create) *create;
	__typeof__(pthread_attr_init) *init;
	__typeof__(pthread_attr_setstacksize) *set_stack;
	__typeof__(pthread_attr_setdetachstate) *set_detached;
	__typeof__(pthread_attr_destroy) *destroy;
	uint64_t all = UINT64_MAX, old;
	pthread_attr_t attributes;
	pthread_t thread;
	bool created;

	if (libc == NULL)
		return false;
	create = (__typeof__(create))libc->dlsym(RTLD_DEFAULT, "pthread_create");
	init = (__typeof__(init))libc->dlsym(RTLD_DEFAULT, "pthread_attr_init");
	set_stack = (__typeof__(set_stack))libc->dlsym(RTLD_DEFAULT, "pthread_attr_setstacksize");
	set_detached = (__typeof__(set_detached))libc->dlsym(RTLD_DEFAULT, "pthread_attr_setdetachstate");
	destroy = (__typeof__(destroy))libc->dlsym(RTLD_DEFAULT, "pthread_attr_destroy");
	if (create == NULL || init == NULL || set_stack == NULL || set_detached == NULL || destroy == NULL ||
	    init(&attributes) != 0)
		return false;
	set_stack(&attributes, VGPU_THREAD_STACK_BYTES);
	set_detached(&attributes, PTHREAD_CREATE_DETACHED);
	/* The program's signals are the program's: the thread inherits that it takes none. */
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof(all));
	created = create(&thread, &attributes, run, argument) == 0;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof(old));
	destroy(&attributes);
	return created;
}
