/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * An ioctl behind the library's, as another preload's: it plays the driver's control device for requests of
 * its type, on whatever descriptor. */
#include "control.h"

#include <errno.h>
#include <linux/ioctl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

int control_fails;
unsigned int control_calls;

int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (_IOC_TYPE(request) != 'F')
		return (int)syscall(SYS_ioctl, fd, request, argument);
	__atomic_add_fetch(&control_calls, 1, __ATOMIC_RELAXED);
	if (!__atomic_load_n(&control_fails, __ATOMIC_RELAXED))
		return 0;
	errno = EIO;
	return -1;
}
