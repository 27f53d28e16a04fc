/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library that calls ioctl, or with SILENT does not; linked in several ways (interposer.mk), it keeps its
 * address in several. With DRIVER it stands where the driver does behind a guard. */
#include <stddef.h>
#include <sys/ioctl.h>

int calling(int fd, unsigned long request, void *argument);
int (*calling_place(void))(int, unsigned long, ...);

#ifdef SILENT
int calling(int fd, unsigned long request, void *argument)
{
	return fd < 0 && request == 0 && argument == NULL;
}
#else
int calling(int fd, unsigned long request, void *argument)
{
	return ioctl(fd, request, argument) + 0 * fd;
}

#ifdef IN_DATA
/* In a table of its own. */
int (*const volatile calling_table[1])(int, unsigned long, ...) = {ioctl};

int (*calling_place(void))(int, unsigned long, ...)
{
	return calling_table[0];
}
#endif
#endif

#ifdef DRIVER
int cuInit(unsigned int flags);

int cuInit(unsigned int flags)
{
	return flags != 0;
}
#endif
