/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Waiting, and the lock for what one process keeps for itself. */
#ifndef VGPU_BASE_FUTEX_H
#define VGPU_BASE_FUTEX_H

#include "base/ranks.h"
#include "tuning.h"

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Out of line: what is called often does not save registers for it. */
#define VGPU_SELDOM __attribute__((noinline, cold, unused))

/* Where the sanitizers run, a test ends when somebody gives back a lock that nobody has. */
#ifdef VGPU_TEST_LOCKS
static inline void vgpu_must_be_held(const uint32_t *word)
{
	if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0)
		__builtin_trap();
}
#else
#define vgpu_must_be_held(word) (void)0
#endif

/* timeout_ns < 0 waits for ever. flags: FUTEX_PRIVATE_FLAG when no other process looks at it. */
static inline long vgpu_futex_wait(uint32_t *word, uint32_t value, int flags, int64_t timeout_ns)
{
	struct timespec ts = {timeout_ns / 1000000000, timeout_ns % 1000000000};

	return syscall(SYS_futex, word, FUTEX_WAIT | flags, value, timeout_ns < 0 ? NULL : &ts, NULL, 0);
}

static inline void vgpu_futex_wake(uint32_t *word, int count, int flags)
{
	syscall(SYS_futex, word, FUTEX_WAKE | flags, count, NULL, NULL, 0);
}

static inline uint64_t vgpu_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Some milliseconds late, and a fifth of the cost. */
static inline uint64_t vgpu_coarse_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* 0 free, 1 held, 2 held and waited for. */
static inline void vgpu_mutex_lock(uint32_t *mutex, enum vgpu_rank rank)
{
	uint32_t free = 0;

	vgpu_lock_comes(mutex, rank);
	if (__atomic_compare_exchange_n(mutex, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	while (__atomic_exchange_n(mutex, 2, __ATOMIC_ACQUIRE) != 0)
		vgpu_futex_wait(mutex, 2, FUTEX_PRIVATE_FLAG, -1);
}

static inline void vgpu_mutex_unlock(uint32_t *mutex)
{
	vgpu_must_be_held(mutex);
	vgpu_lock_goes(mutex);
	if (__atomic_exchange_n(mutex, 0, __ATOMIC_RELEASE) == 2)
		vgpu_futex_wake(mutex, 1, FUTEX_PRIVATE_FLAG);
}

static VGPU_SELDOM void vgpu_brief_wait(uint32_t *word)
{
	const struct timespec pause = {0, VGPU_BRIEF_LOCK_PAUSE_NS};

	for (uint32_t i = 1;; i++) {
		uint32_t free = 0;

		if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(word, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return;
		if (i % VGPU_BRIEF_LOCK_SPINS == 0)
			nanosleep(&pause, NULL);
	}
}

/* 0 free, 1 held. For locks that are held for some tens of nanoseconds, several times in an allocation: no
 * thread is woken, so that giving the lock back is a plain store. */
static inline void vgpu_brief_lock(uint32_t *word, enum vgpu_rank rank)
{
	uint32_t free = 0;

	vgpu_lock_comes(word, rank);
	if (!__atomic_compare_exchange_n(word, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		vgpu_brief_wait(word);
}

static inline void vgpu_brief_unlock(uint32_t *word)
{
	vgpu_must_be_held(word);
	vgpu_lock_goes(word);
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
}

#endif
