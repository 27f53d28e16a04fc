/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include "harness.h"

#include <sys/wait.h>
#include <time.h>

#define HANGS_AFTER_S 60
#define MOST_FAILURES 5
#define MOST_BESIDE 8

uint64_t fuzz_next(struct fuzz *f)
{
	uint64_t z = f->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint32_t fuzz_below(struct fuzz *f, uint32_t end)
{
	return (uint32_t)(fuzz_next(f) % end);
}

uint64_t fuzz_between(struct fuzz *f, uint64_t least, uint64_t most)
{
	return least + fuzz_next(f) % (most - least + 1);
}

uint64_t fuzz_length(struct fuzz *f, uint64_t least, uint64_t most)
{
	uint64_t length = least;

	while (length < most && fuzz_below(f, 4) != 0)
		length *= 2;
	length += fuzz_between(f, 0, length);
	return length < most ? length : most;
}

uint64_t fuzz_number(struct fuzz *f)
{
	uint64_t near = fuzz_below(f, 5) - 2ull;

	switch (fuzz_below(f, 4)) {
	case 0: return near;
	case 1: return (1ull << fuzz_below(f, 64)) + near;
	case 2: return fuzz_below(f, 5000) * MIB;
	default: return fuzz_next(f);
	}
}

void fuzz_bytes(struct fuzz *f, void *to, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((unsigned char *)to)[i] = (unsigned char)fuzz_next(f);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

struct round {
	pid_t pid; /* 0: there is none */
	uint64_t seed;
};

static struct round begin(uint64_t seed, void (*round)(struct fuzz *f))
{
	struct fuzz f = {seed};
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		failures = 0;
		alarm(HANGS_AFTER_S);
		round(&f);
		fflush(NULL);
		_exit(failures == 0 ? 0 : 1);
	}
	return (struct round){pid, seed};
}

/* The place of one that has ended. */
static struct round *end_one(struct round *running, unsigned beside)
{
	int status = -1;
	pid_t pid = waitpid(-1, &status, 0);

	while (beside > 1 && running->pid != pid)
		running++, beside--;
	running->pid = 0;
	if (status == 0)
		return running;
	fprintf(stderr, "VGPU_FUZZ_SEED=%llu VGPU_FUZZ_ROUNDS=1: %s %d\n", (unsigned long long)running->seed,
		WIFSIGNALED(status) ? "signal" : "status",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	failures++;
	return running;
}

void fuzz_rounds_beside(unsigned rounds, unsigned beside, void (*round)(struct fuzz *f))
{
	uint64_t seconds = number_from("VGPU_FUZZ_SECONDS", 0);
	uint64_t first = number_from("VGPU_FUZZ_SEED", seconds != 0 ? (uint64_t)time(NULL) * 1000000 : 1);
	uint64_t most = number_from("VGPU_FUZZ_ROUNDS", seconds != 0 ? UINT64_MAX : rounds);
	time_t until = time(NULL) + (time_t)seconds;
	struct round running[MOST_BESIDE] = {{0}};
	uint64_t done;

	for (done = 0; done < most && (seconds == 0 || time(NULL) < until) && failures < MOST_FAILURES;
	     done++)
		*(done < beside ? &running[done] : end_one(running, beside)) = begin(first + done, round);
	for (uint64_t i = 0; i < beside && i < done; i++)
		end_one(running, beside);
	if (seconds != 0)
		printf("%llu rounds, seeds from %llu\n", (unsigned long long)done, (unsigned long long)first);
}

void fuzz_rounds(unsigned rounds, void (*round)(struct fuzz *f))
{
	fuzz_rounds_beside(rounds, 1, round);
}
