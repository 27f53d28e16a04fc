/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver uses for itself is what it reports less what the program has allocated. Here that changes
 * while it is asked, and the parts that interposer/context/overhead.c asks are the test's own: what happens
 * meanwhile is decided here. */
#include "harness.h"
#include "whole.h"

#include "account/account.h"
#include "account/reclaim.h"
#include "api/symbols.h"
#include "context/overhead.h"
#include "driver/capture.h"
#include "driver/contexts.h"
#include "driver/device.h"
#include "driver/free_memory.h"
#include "driver/report.h"
#include "memory/blocks.h"
#include "memory/holders.h"
#include "memory/vmm.h"
#include "process/message.h"

struct vgpu_pages vgpu_pages;
void *vgpu_real[VGPU_SYMBOLS];
uint32_t vgpu_captures_unseen;
static union whole_process whole;
static struct vgpu_process *const process = &whole.process;
static uint64_t reported_bytes, managed_bytes, unseen_bytes, limit_bytes;
static void (*meanwhile)(void); /* while NVML is asked */
static unsigned asked;
static bool nvml_comes, nvml_fails;

bool vgpu_account_charge(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (vgpu_account(p)->held_bytes[device] + bytes > limit_bytes)
		return false;
	vgpu_account(p)->held_bytes[device] += bytes;
	return true;
}

void vgpu_account_force(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	vgpu_account(p)->held_bytes[device] += bytes;
}

void vgpu_account_give_back(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	CHECK(bytes <= vgpu_account(p)->held_bytes[device]);
	vgpu_account(p)->held_bytes[device] -= bytes;
}

bool vgpu_report_bytes(struct vgpu_process *p, uint32_t device, uint64_t *bytes)
{
	(void)p, (void)device;
	asked++;
	if (meanwhile != NULL)
		meanwhile();
	*bytes = reported_bytes;
	return !nvml_comes && !nvml_fails;
}

bool vgpu_report_is_coming(struct vgpu_process *p)
{
	(void)p;
	return nvml_comes;
}

uint64_t vgpu_blocks_managed_bytes(const struct vgpu_process *p, uint32_t device)
{
	(void)p, (void)device;
	return managed_bytes;
}

uint64_t vgpu_vmm_unseen_bytes(struct vgpu_process *p, uint32_t device)
{
	(void)p, (void)device;
	return unseen_bytes;
}

bool vgpu_contexts_exist(struct vgpu_process *p, uint32_t device)
{
	(void)p;
	return device == 0;
}

int vgpu_device_of_current(struct vgpu_process *p)
{
	(void)p;
	return VGPU_NO_DEVICE;
}

void vgpu_holders_drop_closed(struct vgpu_process *p, uint64_t memory)
{
	(void)p, (void)memory;
}

void vgpu_free_memory_forget(struct vgpu_process *p)
{
	(void)p;
}

void vgpu_message_limit(struct vgpu_process *p, uint32_t device, uint64_t asked_bytes)
{
	(void)p, (void)device, (void)asked_bytes;
}

void *vgpu_real_look_up(enum vgpu_symbol symbol)
{
	(void)symbol;
	return NULL;
}

/* The process has so much allocated itself, and the driver has so much for itself, which is known. */
static void begin(uint64_t allocated_mib, uint64_t driver_mib)
{
	memset(&whole, 0, sizeof(whole));
	meanwhile = NULL;
	nvml_comes = nvml_fails = false;
	managed_bytes = unseen_bytes = 0;
	limit_bytes = 1000 * MIB;
	reported_bytes = (allocated_mib + driver_mib) * MIB;
	vgpu_account(process)->held_bytes[0] = allocated_mib * MIB;
	CHECK(vgpu_overhead_settle(process, 0));
	CHECK_IS(vgpu_overheads(process)->of[0].bytes, driver_mib * MIB);
	CHECK_IS(vgpu_account(process)->held_bytes[0], reported_bytes);
}

static void driver_has(uint64_t mib)
{
	CHECK_IS(vgpu_overheads(process)->of[0].bytes, mib * MIB);
}

static void what_the_driver_takes_and_gives_back_is_charged_as_it_is(void)
{
	begin(100, 50);
	reported_bytes += 30 * MIB;
	CHECK(vgpu_overhead_settle(process, 0));
	driver_has(80);
	CHECK_IS(vgpu_account(process)->held_bytes[0], 180 * MIB);
	reported_bytes -= 60 * MIB;
	CHECK(vgpu_overhead_settle(process, 0));
	driver_has(20);
	CHECK_IS(vgpu_account(process)->held_bytes[0], 120 * MIB);
	reported_bytes += 900 * MIB;
	CHECK(!vgpu_overhead_settle(process, 0));
	driver_has(20);
	CHECK_IS(vgpu_account(process)->held_bytes[0], 120 * MIB);
	CHECK_IS(process->overhead_pending, 1);
}

static void allocates_32(void)
{
	vgpu_account(process)->held_bytes[0] += 32 * MIB;
}

static void frees_32(void)
{
	vgpu_account(process)->held_bytes[0] -= 32 * MIB;
}

/* A call that is in the driver, which is charged when it is back. */
static void announces_32(void)
{
	vgpu_account(process)->may_take_bytes[0] += 32 * MIB;
}

static void what_is_announced_is_charged(void)
{
	vgpu_account(process)->may_take_bytes[0] -= 32 * MIB;
	vgpu_account(process)->held_bytes[0] += 32 * MIB;
}

/* Whether NVML has seen it or not: what was charged before is as likely as anything else. */
static void what_is_allocated_meanwhile_is_not_the_drivers(void)
{
	void (*const changes[])(void) = {allocates_32, frees_32, announces_32, what_is_announced_is_charged};

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		for (int seen = 0; seen < 2; seen++) {
			begin(100, 50);
			if (changes[i] == what_is_announced_is_charged)
				vgpu_account(process)->may_take_bytes[0] = 32 * MIB;
			meanwhile = changes[i];
			if (seen)
				reported_bytes += (changes[i] == frees_32 ? -32ull : 32ull) * MIB;
			CHECK(vgpu_overhead_settle(process, 0));
			driver_has(50);
		}
	}
}

static void what_is_not_reported_is_not_the_drivers_to_give_back(void)
{
	/* Managed memory never is, ... */
	begin(100, 50);
	managed_bytes = 40 * MIB;
	vgpu_account(process)->held_bytes[0] += 40 * MIB;
	CHECK(vgpu_overhead_settle(process, 0));
	driver_has(50);
	/* and some other may be or not. */
	begin(100, 50);
	unseen_bytes = 40 * MIB;
	reported_bytes -= 40 * MIB;
	CHECK(vgpu_overhead_settle(process, 0));
	driver_has(50);
	reported_bytes -= 10 * MIB;
	CHECK(vgpu_overhead_settle(process, 0));
	driver_has(40);
}

static void what_was_promised_stays_until_it_has_come(void)
{
	begin(100, 50);
	CHECK(vgpu_overhead_promise(process, 0, 20 * MIB));
	driver_has(70);
	CHECK(vgpu_overhead_settle(process, 0));
	driver_has(70);
	reported_bytes += 20 * MIB;
	CHECK(vgpu_overhead_settle(process, 0));
	driver_has(70);
	CHECK_IS(vgpu_overheads(process)->of[0].promised_bytes, 0);
	reported_bytes -= 20 * MIB;
	CHECK(vgpu_overhead_settle(process, 0));
	driver_has(50);
	CHECK(vgpu_overhead_promise(process, 0, 20 * MIB));
	vgpu_overhead_unpromise(process, 0, 30 * MIB);
	driver_has(50);
	CHECK_IS(vgpu_account(process)->held_bytes[0], 150 * MIB);
	CHECK(!vgpu_overhead_promise(process, 0, 900 * MIB));
	driver_has(50);
	CHECK_IS(vgpu_account(process)->held_bytes[0], 150 * MIB);
}

static void a_context_that_comes_is_charged_with_what_it_costs(void)
{
	uint64_t cost;

	begin(100, 50);
	CHECK(vgpu_account_charge(process, 0, 200 * MIB));
	vgpu_overhead_coming(process, 0, 200 * MIB);
	CHECK(vgpu_overhead_settle(process, 0));
	driver_has(250);
	reported_bytes += 120 * MIB;
	CHECK(vgpu_overhead_came(process, 0, 200 * MIB, &cost));
	driver_has(170);
	CHECK_IS(cost, 120 * MIB);
	CHECK_IS(vgpu_account(process)->held_bytes[0], 270 * MIB);
	/* One that does not leaves nothing. */
	CHECK(vgpu_account_charge(process, 0, 200 * MIB));
	vgpu_overhead_coming(process, 0, 200 * MIB);
	vgpu_overhead_not_coming(process, 0, 200 * MIB);
	driver_has(170);
	CHECK_IS(vgpu_account(process)->held_bytes[0], 270 * MIB);
	/* Of two that come at once nobody knows which cost what. */
	CHECK(vgpu_account_charge(process, 0, 400 * MIB));
	vgpu_overhead_coming(process, 0, 200 * MIB);
	vgpu_overhead_coming(process, 0, 200 * MIB);
	reported_bytes += 240 * MIB;
	CHECK(vgpu_overhead_came(process, 0, 200 * MIB, &cost));
	CHECK_IS(cost, UINT64_MAX);
	vgpu_overhead_end(process, 0);
	driver_has(200);
	CHECK_IS(vgpu_account(process)->held_bytes[0], 300 * MIB);
}

/* NVML still starts when a context was made. */
static void a_guess_stays_until_nvml_can_say_or_has_failed(void)
{
	uint64_t cost;

	for (int fails = 0; fails < 2; fails++) {
		begin(100, 0);
		reported_bytes += 120 * MIB;
		CHECK(vgpu_overhead_promise(process, 0, 20 * MIB));
		CHECK(vgpu_account_charge(process, 0, 500 * MIB));
		vgpu_overhead_coming(process, 0, 500 * MIB);
		nvml_comes = true;
		CHECK(vgpu_overhead_came(process, 0, 500 * MIB, &cost));
		CHECK_IS(cost, UINT64_MAX);
		CHECK(vgpu_overhead_settle(process, 0));
		driver_has(520);
		nvml_comes = false;
		nvml_fails = fails;
		vgpu_overhead_await(process, 0);
		driver_has(fails ? 20 : 140);
		/* What was measured is no guess any more. */
		nvml_fails = true;
		CHECK(vgpu_overhead_settle(process, 0));
		driver_has(fails ? 20 : 140);
		CHECK_IS(vgpu_account(process)->held_bytes[0], (fails ? 120 : 240) * MIB);
	}
}

/* One that was in the driver when more was loaded says nothing of that. */
static void the_first_launch_after_each_load_is_awaited(void)
{
	uint32_t before;

	begin(10, 10);
	CHECK(!vgpu_overhead_awaits_launch(process));
	CHECK(vgpu_overhead_loaded(process, false));
	CHECK(vgpu_overhead_awaits_launch(process));
	before = vgpu_overhead_loads(process);
	CHECK(vgpu_overhead_loaded(process, false));
	vgpu_overhead_launched(process, before);
	CHECK(vgpu_overhead_awaits_launch(process));
	vgpu_overhead_launched(process, vgpu_overhead_loads(process));
	CHECK(!vgpu_overhead_awaits_launch(process));
	CHECK(vgpu_overhead_has_launched(process));
	vgpu_overhead_ask(process, vgpu_now_ns());
	CHECK(!vgpu_overhead_has_launched(process));
	CHECK(vgpu_overhead_loaded(process, true));
	CHECK(!vgpu_overhead_awaits_launch(process));
}

int main(void)
{
	gpus(0);
	CASE(what_the_driver_takes_and_gives_back_is_charged_as_it_is);
	CASE(what_is_allocated_meanwhile_is_not_the_drivers);
	CASE(what_is_not_reported_is_not_the_drivers_to_give_back);
	CASE(what_was_promised_stays_until_it_has_come);
	CASE(a_context_that_comes_is_charged_with_what_it_costs);
	CASE(a_guess_stays_until_nvml_can_say_or_has_failed);
	CASE(the_first_launch_after_each_load_is_awaited);
	return summary();
}
