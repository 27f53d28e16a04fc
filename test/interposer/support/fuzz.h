/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of random input, each from a seed of its own and in a process of its own. The suite runs
 * the same seeds every time; VGPU_FUZZ_SECONDS goes on with others for so long. What fails prints
 * its seed, and VGPU_FUZZ_SEED=that VGPU_FUZZ_ROUNDS=1 does it again. */
#ifndef VGPU_TEST_FUZZ_H
#define VGPU_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

struct fuzz {
	uint64_t state;
};

uint64_t fuzz_next(struct fuzz *f);
uint32_t fuzz_below(struct fuzz *f, uint32_t end);
uint64_t fuzz_between(struct fuzz *f, uint64_t least, uint64_t most);

/* From least to most, every order of magnitude as often. */
uint64_t fuzz_length(struct fuzz *f, uint64_t least, uint64_t most);

/* A number that code likes to get wrong: near 0, near a power of two, near the largest; or any. */
uint64_t fuzz_number(struct fuzz *f);

void fuzz_bytes(struct fuzz *f, void *to, size_t size);

/* The rounds end with CHECKs of their own; one that takes longer than 60 s hangs, and has failed. */
void fuzz_rounds(unsigned rounds, void (*round)(struct fuzz *f));
/* So many of them at the same time, up to 8: for rounds that wait most of theirs. */
void fuzz_rounds_beside(unsigned rounds, unsigned beside, void (*round)(struct fuzz *f));

#endif
