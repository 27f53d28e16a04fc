/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the programs of other interfaces than CUDA have in common: they take memory in pieces, say how much
 * they got, and hold it for a second, so that others can see it. */
#ifndef VGPU_TEST_OTHER_H
#define VGPU_TEST_OTHER_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE_MIB 256u
#define PIECE_BYTES ((size_t)PIECE_MIB << 20)

static inline unsigned wanted_mib(int argc, char **argv)
{
	return argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 8192;
}

static inline int nothing(const char *why)
{
	printf("nothing: %s\n", why);
	return 0;
}

static inline int hold(unsigned mib)
{
	sleep(1);
	printf("%u MiB\n", mib);
	return 0;
}

#endif
