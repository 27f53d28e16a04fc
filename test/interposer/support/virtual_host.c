/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "virtual_driver.h"

#include "driver/own.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

#define STACK (1u << 20)
/* What it takes to look at the clock. */
#define CLOCK_NS 20

union whole_process virtual_whole;
struct vgpu_ledger virtual_ledger;
struct vgpu_limits virtual_limits;
struct vgpu_pages vgpu_pages;
uint64_t virtual_now, virtual_host_call_ns;

/* ---- the two threads ---- */

static ucontext_t program, poller;
static bool in_poller, poller_started;
static void *(*poller_run)(void *);
static struct {
	const uint32_t *word;
	uint32_t value;
	uint64_t until_ns;
} sleeps;

static void poller_begins(void)
{
	poller_run(&virtual_process);
}

bool vgpu_thread_start(void *(*run)(void *), void *argument)
{
	static char stack[STACK];

	(void)argument;
	poller_run = run;
	poller_started = getcontext(&poller) == 0;
	poller.uc_stack.ss_sp = stack;
	poller.uc_stack.ss_size = sizeof(stack);
	makecontext(&poller, poller_begins, 0);
	sleeps.word = NULL;
	sleeps.until_ns = virtual_now;
	return poller_started;
}

static uint64_t other_ns;
static void (*other)(void);

static void go_on(uint64_t until_ns)
{
	if (other != NULL && virtual_now >= other_ns) {
		void (*what)(void) = other;

		other = NULL;
		what();
		return;
	}
	if (poller_started &&
	    (virtual_now >= sleeps.until_ns || (sleeps.word != NULL && *sleeps.word != sleeps.value))) {
		in_poller = true;
		swapcontext(&program, &poller);
		in_poller = false;
		return;
	}
	until_ns = poller_started && sleeps.until_ns < until_ns ? sleeps.until_ns : until_ns;
	virtual_driver_advance(other != NULL && other_ns < until_ns ? other_ns : until_ns);
}

static long futex_wait(const uint32_t *word, uint32_t value, const struct timespec *timeout)
{
	uint64_t ns = timeout == NULL ? 0 : (uint64_t)timeout->tv_sec * SECOND + (uint64_t)timeout->tv_nsec;
	uint64_t until_ns = timeout == NULL ? UINT64_MAX : virtual_now + ns;

	virtual_asked.poller_sleeps += in_poller;
	virtual_asked.program_sleeps += !in_poller;
	if (in_poller && *word == value) {
		sleeps.word = word;
		sleeps.value = value;
		sleeps.until_ns = until_ns;
		swapcontext(&poller, &program);
		return 0;
	}
	while (*word == value && virtual_now < until_ns)
		go_on(until_ns);
	return 0;
}

/* The linker leads the library's calls here (--wrap). */
int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	if (virtual_now == 0)
		return __real_clock_gettime(clock, ts);
	virtual_now += CLOCK_NS;
	*ts = (struct timespec){(time_t)(virtual_now / SECOND), (long)(virtual_now % SECOND)};
	return 0;
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	int what = (int)b & FUTEX_CMD_MASK;

	if (number != SYS_futex || virtual_now == 0)
		return __real_syscall(number, a, b, c, d, e, f);
	return what == FUTEX_WAIT
		       ? futex_wait((const uint32_t *)(uintptr_t)a, (uint32_t)c, (const struct timespec *)d)
		       : 0;
}

/* ---- the program ---- */

void virtual_host_begin(uint32_t step_percent, uint32_t job_percent)
{
	memset(&virtual_whole, 0, sizeof(virtual_whole));
	memset(&virtual_ledger, 0, sizeof(virtual_ledger));
	memset(&virtual_asked, 0, sizeof(virtual_asked));
	virtual_limits = (struct vgpu_limits){.device_count = 1, .job_id = 1};
	virtual_limits.device[0].sm_percent = step_percent;
	virtual_limits.device[0].job_sm_percent = job_percent;
	vgpu_pages = (struct vgpu_pages){.limits = &virtual_limits, .ledger = &virtual_ledger};
	virtual_process.contexts_made = 1;
	vgpu_driver(&virtual_process)->several_devices = 1;
	virtual_ledger.slots_high = 1;
	virtual_ledger.slot[0].state = 1;
	virtual_now = HOST_BEGIN;
	virtual_host_call_ns = 2 * US;
	virtual_driver_begin();
	poller_started = in_poller = false;
	other = NULL;
}

uint64_t virtual_host_now(void)
{
	return virtual_now;
}

void virtual_host_at(uint64_t ns, void (*what)(void))
{
	other = what;
	other_ns = ns;
}

void virtual_host_works(uint64_t ns)
{
	uint64_t until_ns = virtual_now + ns;

	while (virtual_now < until_ns)
		go_on(until_ns);
}

CUstream virtual_host_stream(uint32_t stream)
{
	return (CUstream)(uintptr_t)(16 * stream);
}

void virtual_host_launch(uint32_t stream, uint64_t kernel, uint64_t ns)
{
	const void *what = (const void *)(uintptr_t)(uint32_t)kernel;
	CUstream handle = virtual_host_stream(stream);
	struct vgpu_launch launch;

	bool shut = vgpu_gate_look(&virtual_process);

	if (shut &&
	    !vgpu_gate_enter(&virtual_process, &launch, handle, what, kernel >> 32, VGPU_PLACES_OTHER))
		abort();
	virtual_host_works(virtual_host_call_ns);
	virtual_driver_put(handle, true, ns);
	if (shut)
		vgpu_gate_leave(&virtual_process, &launch, CUDA_SUCCESS);
}

void virtual_host_copy(uint32_t stream, uint64_t ns)
{
	CUstream handle = virtual_host_stream(stream);

	vgpu_gate_beside(&virtual_process, handle);
	virtual_driver_put(handle, false, ns);
	virtual_host_works(2 * US);
}

void virtual_host_waits(uint32_t stream)
{
	while (!virtual_driver_is_drained(virtual_host_stream(stream)))
		go_on(virtual_now + 5 * US);
	vgpu_lease_drop_if_shared();
	vgpu_gate_synchronised(&virtual_process);
}

uint64_t virtual_host_busy_ns(uint64_t from_ms, uint64_t to_ms)
{
	return virtual_driver_busy_ns(from_ms, to_ms);
}
