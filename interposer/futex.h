/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Waiting, and the lock for what one process keeps for itself. */
#ifndef VGPU_FUTEX_H
#define VGPU_FUTEX_H

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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
static inline void vgpu_mutex_lock(uint32_t *mutex)
{
	uint32_t free = 0;

	if (__atomic_compare_exchange_n(mutex, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	while (__atomic_exchange_n(mutex, 2, __ATOMIC_ACQUIRE) != 0)
		vgpu_futex_wait(mutex, 2, FUTEX_PRIVATE_FLAG, -1);
}

static inline void vgpu_mutex_unlock(uint32_t *mutex)
{
	if (__atomic_exchange_n(mutex, 0, __ATOMIC_RELEASE) == 2)
		vgpu_futex_wake(mutex, 1, FUTEX_PRIVATE_FLAG);
}

#endif
