/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The account when its lock is lost, with two processes of a job in this one: what each does between two
 * lines of the other is decided here, at the calls for the lock, and not by chance. */
#include "harness.h"
#include "whole.h"

#include "account/account.h"
#include "account/locked.h"
#include "account/lock.h"
#include "account/reclaim.h"
#include "base/futex.h"
#include "base/identity.h"

#include <pthread.h>
#include <sys/wait.h>

#define LIMIT_MIB 128u
#define STEP_MIB 64u
#define ANOTHER_HOLDER 0x3ffffffeu
#define FOREIGN 42u
#define MS 1000000ull

struct vgpu_pages vgpu_pages;
static struct vgpu_ledger ledger;
static struct vgpu_limits limits;
static union whole_process first, second;
static struct vgpu_process *const one = &first.process, *const other = &second.process;
static void (*before_lock)(void);
static void (*before_unlock)(void);

/* Whom the account asks before it would refuse: nobody. */
vgpu_reclaimer *const vgpu_reclaimers[] = {NULL};

/* The linker leads the account's calls here (--wrap). */
bool __real_vgpu_ledger_lock(struct vgpu_process *p);
bool __real_vgpu_ledger_unlock(struct vgpu_process *p);

static void once(void (**what)(void))
{
	void (*now)(void) = *what;

	*what = NULL;
	if (now != NULL)
		now();
}

bool __wrap_vgpu_ledger_lock(struct vgpu_process *p)
{
	once(&before_lock);
	return __real_vgpu_ledger_lock(p);
}

bool __wrap_vgpu_ledger_unlock(struct vgpu_process *p)
{
	once(&before_unlock);
	return __real_vgpu_ledger_unlock(p);
}

static void become(struct vgpu_process *p, int32_t pid)
{
	struct vgpu_identity is;

	memset(p, 0, VGPU_OWN_BYTES);
	p->pid = pid;
	p->pidns = vgpu_identity_pidns();
	CHECK(vgpu_identity_read(pid, &is));
	p->start_ticks = is.start_ticks;
	p->image = is.image;
	CHECK(vgpu_account_open(p));
}

/* This process and its parent, which lives as long. */
static void two_processes_of_a_job(void)
{
	memset(&ledger, 0, sizeof(ledger));
	limits = (struct vgpu_limits){.device_count = 1};
	limits.device[0].step_mem_bytes = STEP_MIB * MIB;
	limits.device[0].job_mem_bytes = LIMIT_MIB * MIB;
	vgpu_pages = (struct vgpu_pages){.limits = &limits, .ledger = &ledger};
	become(one, (int32_t)getpid());
	limits.step_id = 1;
	become(other, (int32_t)getppid());
	limits.step_id = 0;
	limits.device[0].step_mem_bytes = LIMIT_MIB * MIB;
}

static uint64_t in_slots(void)
{
	return ledger.slot[one->slot].used_bytes[0] + ledger.slot[other->slot].used_bytes[0];
}

static void sums_are(uint64_t bytes)
{
	CHECK_IS(in_slots(), bytes);
	CHECK_IS(ledger.used_bytes[0], bytes);
	CHECK_IS(vgpu_account(one)->held_bytes[0], ledger.slot[one->slot].used_bytes[0]);
}

/* Somebody thinks that the lock is stuck, takes it, charges what has room by the sums from before, and is
 * through. */
static void is_robbed(void)
{
	ledger.slot[other->slot].used_bytes[0] = 100 * MIB;
	ledger.lock = 0;
}

/* The same, and still has it. */
static void is_robbed_and_sees_it(void)
{
	ledger.slot[other->slot].used_bytes[0] = 100 * MIB;
	ledger.lock = ANOTHER_HOLDER;
	ledger.lock_pidns = one->pidns; /* of whom there is none, so that it comes free again */
}

static void both_charge_and_one_loses_the_lock(uint64_t bytes, void (*robbery)(void), bool stands)
{
	two_processes_of_a_job();
	before_unlock = robbery;
	CHECK_IS(vgpu_account_try(one, 0, bytes), stands);
	CHECK_IS(ledger.slot[one->slot].used_bytes[0], stands ? bytes : 0);
	sums_are(100 * MIB + (stands ? bytes : 0));
	CHECK_IS(ledger.lock, 0);
}

static void a_charge_under_a_lost_lock_stands_if_it_fits(void)
{
	both_charge_and_one_loses_the_lock(28 * MIB, is_robbed, true);
	both_charge_and_one_loses_the_lock(28 * MIB, is_robbed_and_sees_it, true);
}

static void a_charge_under_a_lost_lock_is_given_back_if_it_does_not_fit(void)
{
	both_charge_and_one_loses_the_lock(28 * MIB + 1, is_robbed, false);
	both_charge_and_one_loses_the_lock(28 * MIB + 1, is_robbed_and_sees_it, false);
	both_charge_and_one_loses_the_lock(100 * MIB, is_robbed, false);
}

static void an_announcement_under_a_lost_lock_does_not_count(void)
{
	two_processes_of_a_job();
	CHECK(vgpu_account_try(one, 0, 10 * MIB));
	before_unlock = is_robbed;
	CHECK(!vgpu_account_reserve_charged_locked(one, 0, 10 * MIB));
	CHECK_IS(vgpu_account(one)->may_take_bytes[0], 0);
	CHECK_IS(ledger.slot[one->slot].may_take_bytes[0], 0);
	sums_are(100 * MIB);
}

static void what_is_given_back_under_a_lost_lock_is_counted_once(void)
{
	two_processes_of_a_job();
	CHECK(vgpu_account_try(one, 0, 20 * MIB));
	before_unlock = is_robbed;
	vgpu_account_give_back(one, 0, 10 * MIB);
	sums_are(110 * MIB);
}

static void whoever_lost_the_lock_leaves_it_to_who_has_it(void)
{
	two_processes_of_a_job();
	__real_vgpu_ledger_lock(one);
	CHECK_IS(ledger.lock, gettid());
	ledger.lock = ANOTHER_HOLDER;
	CHECK(!__real_vgpu_ledger_unlock(one));
	CHECK_IS(ledger.lock, ANOTHER_HOLDER);
	ledger.lock = ANOTHER_HOLDER | FUTEX_WAITERS;
	CHECK(!__real_vgpu_ledger_unlock(one));
	CHECK_IS(ledger.lock, ANOTHER_HOLDER | FUTEX_WAITERS);
	ledger.lock = 0;
	CHECK(!__real_vgpu_ledger_unlock(one));
	__real_vgpu_ledger_lock(one);
	CHECK(__real_vgpu_ledger_unlock(one));
	CHECK_IS(ledger.lock, 0);
}

static int32_t ended_child(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	return (int32_t)pid;
}

/* How long it takes to get a lock that has this holder. */
static uint64_t waited_for_ns(uint32_t holder, uint64_t pidns)
{
	uint64_t began = now_ns();

	ledger.lock_pidns = pidns;
	__atomic_store_n(&ledger.lock, holder, __ATOMIC_RELEASE);
	CHECK(__real_vgpu_ledger_lock(one));
	CHECK_IS(ledger.lock & ~FUTEX_WAITERS, gettid());
	CHECK(__real_vgpu_ledger_unlock(one));
	return now_ns() - began;
}

/* Bounds from above are wide: half of a second is long for a machine, and half of what a living holder
 * has. */
static void a_holder_is_waited_for_as_long_as_it_may_run(void)
{
	two_processes_of_a_job();
	CHECK_WITHIN(waited_for_ns((uint32_t)ended_child(), one->pidns), 0, 500 * MS);
	CHECK_WITHIN(waited_for_ns(0xffffffffu & ~FUTEX_WAITERS & ~0x80000000u, one->pidns), 0, 500 * MS);
	/* It may live where nobody here can see it. */
	CHECK_WITHIN(waited_for_ns((uint32_t)ended_child(), FOREIGN), 1000 * MS, 2500 * MS);
	CHECK_WITHIN(waited_for_ns((uint32_t)getppid(), one->pidns), 1000 * MS, 2500 * MS);
	/* Who does not know where it is itself cannot say either. */
	one->pidns = 0;
	CHECK_WITHIN(waited_for_ns((uint32_t)ended_child(), 0), 1000 * MS, 2500 * MS);
}

static bool turning;

static void *turns(void *unused)
{
	const struct timespec pause = {0, 5 * MS};

	while (__atomic_load_n(&turning, __ATOMIC_RELAXED)) {
		__atomic_add_fetch(&ledger.lock_turns, 1, __ATOMIC_RELAXED);
		nanosleep(&pause, NULL);
	}
	return unused;
}

/* One thread that charges again and again is seen with the lock each time, and has not kept it. It is not
 * waited for for ever, though, and once this was seen no longer than a moment. */
static void a_lock_that_is_passed_on_is_not_stuck(void)
{
	pthread_t thread;

	two_processes_of_a_job();
	turning = true;
	CHECK(pthread_create(&thread, NULL, turns, NULL) == 0);
	CHECK_WITHIN(waited_for_ns((uint32_t)getppid(), one->pidns), 2900 * MS, 20000 * MS);
	CHECK_WITHIN(waited_for_ns((uint32_t)getppid(), one->pidns), 5 * MS, 1500 * MS);
	turning = false;
	pthread_join(thread, NULL);
}

static uint32_t dead_slot(uint64_t pidns)
{
	uint32_t at = 7;

	ledger.slot[at].state = 1;
	ledger.slot[at].pid = ended_child();
	ledger.slot[at].start_ticks = 1;
	ledger.slot[at].pidns = pidns;
	ledger.slot[at].step = one->step;
	ledger.slot[at].used_bytes[0] = 30 * MIB;
	ledger.slots_high = at + 1;
	vgpu_account_recount();
	return at;
}

static void a_slot_of_another_namespace_stays(void)
{
	uint32_t at;

	two_processes_of_a_job();
	at = dead_slot(FOREIGN);
	vgpu_account_sweep(one, true);
	CHECK_IS(ledger.slot[at].state, 1);
	CHECK_IS(ledger.slot[at].used_bytes[0], 30 * MIB);
	CHECK(!vgpu_account_charge(one, 0, 99 * MIB));
	CHECK_IS(ledger.slot[at].state, 1);

	at = dead_slot(one->pidns);
	CHECK(vgpu_account_charge(one, 0, 99 * MIB));
	CHECK_IS(ledger.slot[at].state, 0);
	sums_are(99 * MIB);
}

static void somebody_takes_the_slot(void)
{
	ledger.slot[7].pid = (int32_t)getppid();
}

static void somebody_takes_the_pid_too(void)
{
	ledger.slot[7].start_ticks = 2;
}

/* Between the look and the lock it went to one that lives. */
static void a_slot_that_was_reused_meanwhile_stays(void)
{
	void (*reuse[])(void) = {somebody_takes_the_slot, somebody_takes_the_pid_too};

	for (int i = 0; i < 2; i++) {
		two_processes_of_a_job();
		dead_slot(one->pidns);
		before_lock = reuse[i];
		vgpu_account_sweep(one, true);
		CHECK_IS(ledger.slot[7].state, 1);
		CHECK_IS(ledger.slot[7].used_bytes[0], 30 * MIB);
	}
}

/* A process passes neither limit by what it knows to hold itself, whatever is left in the ledger; nor by what
 * it has announced. */
static void a_wiped_ledger_gives_no_more_than_the_step_has(void)
{
	two_processes_of_a_job();
	limits.device[0].step_mem_bytes = STEP_MIB * MIB;
	CHECK(vgpu_account_try(one, 0, 40 * MIB));
	/* Healed before it is looked at, so the slot is right and the sums are wrong: both must hold. */
	vgpu_account_lock(one);
	ledger.used_bytes[0] = ledger.step[one->step].used_bytes[0] = 0;
	CHECK(!vgpu_account_take(one, 0, 24 * MIB + 1));
	CHECK(vgpu_account_take(one, 0, 24 * MIB));
	ledger.used_bytes[0] = ledger.step[one->step].used_bytes[0] = 0;
	limits.device[0].job_mem_bytes = 70 * MIB;
	limits.device[0].step_mem_bytes = 200 * MIB;
	CHECK(!vgpu_account_take(one, 0, 6 * MIB + 1));
	CHECK(vgpu_account_take(one, 0, 6 * MIB));
	vgpu_account_unlock(one);
}

int main(void)
{
	gpus(0);
	CASE(a_charge_under_a_lost_lock_stands_if_it_fits);
	CASE(a_charge_under_a_lost_lock_is_given_back_if_it_does_not_fit);
	CASE(an_announcement_under_a_lost_lock_does_not_count);
	CASE(what_is_given_back_under_a_lost_lock_is_counted_once);
	CASE(whoever_lost_the_lock_leaves_it_to_who_has_it);
	CASE(a_holder_is_waited_for_as_long_as_it_may_run);
	CASE(a_lock_that_is_passed_on_is_not_stuck);
	CASE(a_slot_of_another_namespace_stays);
	CASE(a_slot_that_was_reused_meanwhile_stays);
	CASE(a_wiped_ledger_gives_no_more_than_the_step_has);
	return summary();
}
