/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How a program asks the process that started it what the driver really holds for it. That one runs
 * without the interposer, so it sees what the driver says, and not what a slice is told. */
#ifndef VGPU_TEST_WITNESS_H
#define VGPU_TEST_WITNESS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WITNESS_FD_ENV "VGPU_WITNESS_FD"
#define WITNESS_UNKNOWN UINT64_MAX

/* Bytes; WITNESS_UNKNOWN where there is no witness. */
struct witness_said {
	uint64_t process;      /* of the pid asked for */
	uint64_t session;      /* of all processes that the witness has started */
	uint64_t session_peak; /* the highest sum seen so far */
	uint64_t device_free;
};

static inline struct witness_said witness_ask(pid_t pid)
{
	struct witness_said said;
	const char *fd = getenv(WITNESS_FD_ENV);
	int32_t asked = (int32_t)pid;

	if (fd == NULL || send(atoi(fd), &asked, sizeof(asked), MSG_NOSIGNAL) != (ssize_t)sizeof(asked) ||
	    read(atoi(fd), &said, sizeof(said)) != (ssize_t)sizeof(said))
		memset(&said, 0xff, sizeof(said));
	return said;
}

#endif
