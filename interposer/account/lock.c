/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "account/lock.h"

#include "account/own.h"
#include "base/futex.h"
#include "tuning.h"

#include <errno.h>
#include <signal.h>

/* A forked child's first thread inherits this: pid tells. */
static __thread struct {
	int32_t pid;
	uint32_t tid;
} this_thread;

static VGPU_SELDOM uint32_t ask_thread_id(const struct vgpu_process *p)
{
	this_thread.tid = (uint32_t)syscall(SYS_gettid);
	this_thread.pid = p->pid;
	return this_thread.tid;
}

static uint32_t thread_id(const struct vgpu_process *p)
{
	return this_thread.pid == p->pid ? this_thread.tid : ask_thread_id(p);
}

static bool try_lock(struct vgpu_ledger *ledger, uint32_t from, uint32_t to)
{
	/* In one order with what is reserved without it (locked.h). */
	return __atomic_compare_exchange_n(&ledger->lock, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static bool holder_is_dead(const struct vgpu_process *p, uint32_t holder)
{
	return p->pidns != 0 &&
	       __atomic_load_n(&vgpu_pages.ledger->lock_pidns, __ATOMIC_RELAXED) == p->pidns &&
	       (holder > INT32_MAX || (kill((int32_t)holder, 0) != 0 && errno == ESRCH));
}

/* Returns true when the lock was taken over. */
static bool wait_for_lock(struct vgpu_process *p, struct vgpu_ledger *ledger, uint32_t me)
{
	uint64_t began = vgpu_now_ns();
	uint64_t since = began;
	uint64_t robbed = __atomic_load_n(&vgpu_account(p)->robbed_ns, __ATOMIC_RELAXED);
	uint64_t grace = robbed != 0 && began - robbed < VGPU_LEDGER_LOCK_ROBBED_FOR_NS
				 ? VGPU_LEDGER_LOCK_ROBBED_GRACE_NS
				 : VGPU_LEDGER_LOCK_GRACE_NS;
	uint32_t seen = 0;
	uint64_t seen_turns = 0;

	while (vgpu_now_ns() - began < grace) {
		uint32_t word = __atomic_load_n(&ledger->lock, __ATOMIC_RELAXED);
		uint32_t holder = word & ~FUTEX_WAITERS;
		uint64_t turns = __atomic_load_n(&ledger->lock_turns, __ATOMIC_RELAXED);

		/* Others may sleep on it still, so whoever has slept takes it with the mark. */
		if (holder == 0) {
			if (try_lock(ledger, word, me | FUTEX_WAITERS))
				return false;
			continue;
		}
		if (holder != seen || turns != seen_turns) {
			seen = holder;
			seen_turns = turns;
			since = vgpu_now_ns();
		} else if (vgpu_now_ns() - since > VGPU_LEDGER_LOCK_HOLD_NS ||
			   (vgpu_now_ns() - since > VGPU_LEDGER_LOCK_SLEEP_NS / 2 &&
			    holder_is_dead(p, holder))) {
			if (try_lock(ledger, word, me | FUTEX_WAITERS))
				return true;
			continue;
		}
		if (!(word & FUTEX_WAITERS) && !try_lock(ledger, word, word | FUTEX_WAITERS))
			continue;
		vgpu_futex_wait(&ledger->lock, word | FUTEX_WAITERS, 0, VGPU_LEDGER_LOCK_SLEEP_NS);
	}
	__atomic_store_n(&vgpu_account(p)->robbed_ns, vgpu_now_ns(), __ATOMIC_RELAXED);
	__atomic_store_n(&ledger->lock, me | FUTEX_WAITERS, __ATOMIC_SEQ_CST);
	return true;
}

static VGPU_SELDOM bool spin_or_wait(struct vgpu_process *p, struct vgpu_ledger *ledger, uint32_t me)
{
	for (int i = 0; i < VGPU_LEDGER_LOCK_SPINS; i++) {
		if (__atomic_load_n(&ledger->lock, __ATOMIC_RELAXED) == 0 && try_lock(ledger, 0, me))
			return false;
	}
	return wait_for_lock(p, ledger, me);
}

bool vgpu_ledger_lock(struct vgpu_process *p)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t me = thread_id(p);
	bool taken_over;

	vgpu_lock_comes(&ledger->lock, VGPU_RANK_LEDGER);
	taken_over = !try_lock(ledger, 0, me) && spin_or_wait(p, ledger, me);
	__atomic_store_n(&ledger->lock_turns, __atomic_load_n(&ledger->lock_turns, __ATOMIC_RELAXED) + 1,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&ledger->lock_pidns, p->pidns, __ATOMIC_RELAXED);
	return taken_over;
}

/* Somebody sleeps on it, or it is not ours any more. */
static VGPU_SELDOM bool unlock_slowly(struct vgpu_ledger *ledger, uint32_t me)
{
	uint32_t word = __atomic_load_n(&ledger->lock, __ATOMIC_RELAXED);
	int tries = 0;

	do {
		if ((word & ~FUTEX_WAITERS) != me || tries++ == VGPU_LEDGER_UNLOCK_TRIES)
			return false;
	} while (
		!__atomic_compare_exchange_n(&ledger->lock, &word, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	if (word & FUTEX_WAITERS)
		vgpu_futex_wake(&ledger->lock, 1, 0);
	return true;
}

bool vgpu_ledger_unlock(struct vgpu_process *p)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t me = thread_id(p);
	uint32_t word = me;

	vgpu_lock_goes(&ledger->lock);
	if (__atomic_compare_exchange_n(&ledger->lock, &word, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		return true;
	return unlock_slowly(ledger, me);
}
