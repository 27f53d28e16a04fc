/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/identity.h"

#include "base/number.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Fields of /proc/PID/stat after the name, counted as proc(5) does. */
#define FIELD_STATE 3
#define FIELD_THREADS 20
#define FIELD_START 22
#define FIELD_STACK 28

bool vgpu_identity_read(int32_t pid, struct vgpu_identity *out)
{
	char path[40] = "/proc/self/stat";
	char text[1024];
	const char *at;
	ssize_t n;
	char state = 'R';
	uint64_t threads = 2;
	int fd;

	*out = (struct vgpu_identity){0};
	if (pid != 0)
		snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	at = strrchr(text, ')'); /* the name may hold anything, brackets and spaces too */
	if (at == NULL)
		return false;
	at++;
	for (int field = FIELD_STATE; field <= FIELD_STACK && *at == ' '; field++) {
		at++;
		if (field == FIELD_STATE)
			state = *at;
		else if (field == FIELD_THREADS)
			vgpu_number_read(&at, &threads);
		else if (field == FIELD_START)
			vgpu_number_read(&at, &out->start_ticks);
		else if (field == FIELD_STACK)
			vgpu_number_read(&at, &out->image);
		while (*at != '\0' && *at != ' ')
			at++;
	}
	/* A first thread that has ended looks like a zombie while others go on. */
	out->dead = (state == 'Z' || state == 'X') && threads <= 1;
	return out->start_ticks != 0;
}

uint64_t vgpu_identity_pidns(void)
{
	struct stat st;

	return vgpu_stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

bool vgpu_identity_alive(int32_t pid, uint64_t start_ticks, uint64_t image)
{
	struct vgpu_identity now;

	if (pid <= 0)
		return false;
	if (kill(pid, 0) != 0 && errno == ESRCH)
		return false;
	if (!vgpu_identity_read(pid, &now))
		return true;
	if (now.dead || (start_ticks != 0 && now.start_ticks != start_ticks))
		return false;
	return image == 0 || now.image == 0 || now.image == image;
}
