/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "context/overhead.h"

#include "account/account.h"
#include "account/reclaim.h"
#include "api/symbols.h"
#include "base/arithmetic.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "driver/capture.h"
#include "driver/contexts.h"
#include "driver/device.h"
#include "driver/free_memory.h"
#include "driver/report.h"
#include "memory/blocks.h"
#include "memory/holders.h"
#include "memory/own.h"
#include "memory/vmm.h"
#include "process/message.h"
#include "tuning.h"

/* The bytes that this process has allocated itself; *may_take_bytes: the most that its calls in the driver
 * add. */
static uint64_t allocated(struct vgpu_process *p, uint32_t device, uint64_t *may_take_bytes)
{
	uint64_t bytes;

	*may_take_bytes = vgpu_account_may_take(p, device);
	vgpu_mutex_lock(&vgpu_overheads(p)->mutex, VGPU_RANK_OVERHEAD);
	bytes = vgpu_minus(vgpu_account_held(p, device), vgpu_overheads(p)->of[device].bytes);
	vgpu_mutex_unlock(&vgpu_overheads(p)->mutex);
	return bytes;
}

/* The device's free memory as the driver tells it, for the current context's device. */
static bool free_now(uint64_t *bytes)
{
	vgpu_fn_cuMemGetInfo_v2 *get_info = VGPU_REAL(cuMemGetInfo_v2);
	size_t free_bytes;
	size_t total_bytes;

	if (get_info == NULL || get_info(&free_bytes, &total_bytes) != CUDA_SUCCESS)
		return false;
	*bytes = free_bytes;
	return true;
}

/* The driver's figure of this process's use. Where the driver cannot be queried at all, the guess goes. */
static bool ask_nvml(struct vgpu_process *p, uint32_t device, uint64_t *bytes)
{
	struct vgpu_overhead *overhead = &vgpu_overheads(p)->of[device];
	bool comes = vgpu_report_is_coming(p); /* before it may have come, so that it is asked then */
	bool answers = vgpu_report_bytes(p, device, bytes);
	uint64_t wrong;

	if (comes && !answers)
		return false;
	vgpu_mutex_lock(&vgpu_overheads(p)->mutex, VGPU_RANK_OVERHEAD);
	wrong = vgpu_minus(overhead->bytes, overhead->promised_bytes + overhead->coming_bytes);
	wrong = !answers && overhead->is_guess ? wrong : 0;
	overhead->is_guess = 0;
	overhead->bytes -= wrong;
	vgpu_account_give_back(p, device, wrong);
	vgpu_mutex_unlock(&vgpu_overheads(p)->mutex);
	return answers;
}

/* more_bytes: what did not fit, when it returns false. */
static bool settle_quietly(struct vgpu_process *p, uint32_t device, bool is_current, bool force,
			   uint64_t *more_bytes)
{
	struct vgpu_overhead *overhead = &vgpu_overheads(p)->of[device];
	uint64_t may_take, may_take_after;
	uint64_t before = allocated(p, device, &may_take), managed = vgpu_blocks_managed_bytes(p, device);
	uint64_t reported, free_bytes, after, managed_after, unsure, least, most, more;
	bool fits;

	SET(overhead->read_ns, vgpu_now_ns());
	SET(overhead->measured_bytes, UINT64_MAX);
	if (is_current && free_now(&free_bytes)) {
		SET(overhead->free_bytes, free_bytes);
		SET(overhead->allocated_bytes, before);
		SET(overhead->managed_bytes, managed);
	}
	if (!ask_nvml(p, device, &reported))
		return true;
	after = allocated(p, device, &may_take_after);
	managed_after = vgpu_blocks_managed_bytes(p, device);
	unsure = vgpu_vmm_unseen_bytes(p, device);
	/* Managed memory is never reported (H200, driver 580), some other memory not always, and other
	 * threads allocate meanwhile. Within these bounds what was charged before is as likely as
	 * anything else, and stays. */
	least = vgpu_minus(reported, vgpu_minus(vgpu_larger(before + may_take, after + may_take_after),
						vgpu_smaller(managed, managed_after)));
	most = vgpu_minus(reported, vgpu_minus(vgpu_smaller(before, after),
					       vgpu_larger(managed, managed_after) + unsure));
	SET(overhead->measured_bytes, least);
	vgpu_mutex_lock(&vgpu_overheads(p)->mutex, VGPU_RANK_OVERHEAD);
	/* All that was charged is there, so what was promised has come. */
	if (least >= overhead->bytes)
		overhead->promised_bytes = 0;
	most += overhead->promised_bytes + overhead->coming_bytes;
	more = vgpu_minus(least, overhead->bytes);
	vgpu_mutex_unlock(&vgpu_overheads(p)->mutex);
	/* Not with the mutex held: for want of room pools are trimmed, by the driver. Another thread may
	 * charge the same bytes meanwhile; what is too much then goes back. */
	if (force && more != 0)
		vgpu_account_force(p, device, more);
	fits = more == 0 || force || vgpu_account_charge(p, device, more);
	/* Bytes that are charged only now may have been taken before the driver last gave its free memory. */
	if (more != 0)
		vgpu_free_memory_forget(p);
	vgpu_mutex_lock(&vgpu_overheads(p)->mutex, VGPU_RANK_OVERHEAD);
	if (fits)
		overhead->bytes += more;
	if (overhead->bytes > most) {
		vgpu_account_give_back(p, device, overhead->bytes - most);
		overhead->bytes = most;
	}
	vgpu_mutex_unlock(&vgpu_overheads(p)->mutex);
	if (fits)
		return true;
	*more_bytes = more;
	SET(p->overhead_pending, 1);
	SET(p->overhead_due_ns, 0);
	SET(overhead->read_ns, 0); /* what is undone now must not hide what comes next */
	return false;
}

static bool settle_device(struct vgpu_process *p, uint32_t device, bool is_current)
{
	uint64_t more;
	bool fits = settle_quietly(p, device, is_current, false, &more);

	if (!fits)
		vgpu_message_limit(p, device, more);
	return fits;
}

bool vgpu_overhead_settle(struct vgpu_process *p, uint32_t device)
{
	return settle_device(p, device, vgpu_device_of_current(p) == (int)device);
}

static bool moved(struct vgpu_process *p, uint32_t device)
{
	struct vgpu_overhead *overhead = &vgpu_overheads(p)->of[device];
	uint64_t is, may_take;
	uint64_t then = GET(overhead->free_bytes) + GET(overhead->allocated_bytes);

	/* Free memory does not follow what is managed: the driver takes it when it is touched, and of the
	 * device in pieces of 128 MiB. */
	if (vgpu_blocks_managed_bytes(p, device) != GET(overhead->managed_bytes) || !free_now(&is))
		return true;
	is += allocated(p, device, &may_take);
	return vgpu_minus(is, then) >= VGPU_OVERHEAD_MOVED_BYTES ||
	       vgpu_minus(then, is) >= VGPU_OVERHEAD_MOVED_BYTES;
}

/* When to ask next: nobody has to be asked often about a program whose kernels are all there. */
static void ask_later(struct vgpu_process *p, uint64_t now_ns, bool changed)
{
	uint64_t every_ns =
		changed ? VGPU_OVERHEAD_ASK_NS
			: vgpu_larger(vgpu_smaller(2 * GET(vgpu_overheads(p)->every_ns),
						   VGPU_OVERHEAD_ASK_LEAST_NS),
				      VGPU_OVERHEAD_ASK_NS);

	SET(vgpu_overheads(p)->every_ns, every_ns);
	SET(p->overhead_due_ns, now_ns + every_ns);
}

/* The charge for the driver's own memory. */
static uint64_t charged(struct vgpu_process *p)
{
	uint64_t bytes = 0;

	vgpu_mutex_lock(&vgpu_overheads(p)->mutex, VGPU_RANK_OVERHEAD);
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++)
		bytes += vgpu_overheads(p)->of[d].bytes;
	vgpu_mutex_unlock(&vgpu_overheads(p)->mutex);
	return bytes;
}

/* A cheap guess, without a query to the driver: is the driver's overhead the same as at the last query?
 * Memory of other processes that is open here passes to this process without a free. */
static bool seems_the_same(struct vgpu_process *p, uint32_t device, bool is_current)
{
	const struct vgpu_overhead *overhead = &vgpu_overheads(p)->of[device];

	return is_current && GET(p->opened) == GET(vgpu_memory(p)->closed) &&
	       GET(overhead->measured_bytes) != UINT64_MAX &&
	       vgpu_now_ns() - GET(overhead->read_ns) < VGPU_OVERHEAD_ASK_ANYWAY_NS && !moved(p, device);
}

static bool look_at_device(struct vgpu_process *p, uint32_t device, bool is_current, bool lightly)
{
	bool due = vgpu_now_ns() - GET(vgpu_overheads(p)->of[device].read_ns) >= VGPU_OVERHEAD_ASK_NS;

	if (lightly ? !due || seems_the_same(p, device, is_current)
		    : !due && (!is_current || !moved(p, device)))
		return true;
	return settle_device(p, device, is_current);
}

static bool look_at_all(struct vgpu_process *p, bool lightly)
{
	int current = vgpu_device_of_current(p);
	bool ok = true;

	if (current != VGPU_NO_DEVICE)
		return current < 0 || look_at_device(p, (uint32_t)current, true, lightly);
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++) {
		if (vgpu_contexts_exist(p, d))
			ok = look_at_device(p, d, false, lightly) && ok;
	}
	return ok;
}

bool vgpu_overhead_look(struct vgpu_process *p, bool lightly)
{
	uint64_t now_ns, before;
	bool ok, launched;

	if (!lightly)
		return look_at_all(p, false);
	now_ns = vgpu_coarse_ns();
	launched = vgpu_overhead_has_launched(p);
	if (now_ns < GET(p->overhead_due_ns) && !launched)
		return true;
	before = charged(p);
	ok = look_at_all(p, true);
	/* After a load it stays due: the rest may come with the next launch. */
	if (ok && GET(p->overhead_due_ns) != 0 && !launched)
		ask_later(p, now_ns, charged(p) != before);
	return ok;
}

bool vgpu_overhead_loaded(struct vgpu_process *p, bool lightly)
{
	bool fits = vgpu_overhead_look(p, lightly);

	if (!lightly) {
		SET(vgpu_overheads(p)->every_ns, 0);
		SET(p->overhead_due_ns, 0);
		ADD(p->loads, 1);
	}
	/* Its line of the cache is everybody's. */
	if (GET(p->overhead_pending) == 0)
		SET(p->overhead_pending, 1);
	return fits;
}

void vgpu_overhead_see_closed(struct vgpu_process *p)
{
	SET(p->overhead_closed, GET(vgpu_memory(p)->closed));
	vgpu_overhead_look(p, false);
}

bool vgpu_overhead_settle_current(struct vgpu_process *p)
{
	int current = vgpu_device_of_current(p);

	return current < 0 || settle_device(p, (uint32_t)current, true);
}

/* The driver is not asked for its free memory while some other stream may be captured. */
void vgpu_overhead_ask(struct vgpu_process *p, uint64_t now_ns)
{
	int current = vgpu_capture_possible(p) ? VGPU_NO_DEVICE : vgpu_device_of_current(p);
	uint64_t more, before = charged(p);

	SET(vgpu_overheads(p)->launched, GET(p->launched));
	SET(p->overhead_closed, GET(vgpu_memory(p)->closed));
	ask_later(p, now_ns, false); /* for the other threads, which come by meanwhile */
	vgpu_holders_drop_closed(p, 0);
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++) {
		bool is_current = current == (int)d;

		if (!vgpu_contexts_exist(p, d) || seems_the_same(p, d, is_current))
			continue;
		settle_quietly(p, d, is_current, true, &more);
		if (!is_current)
			SET(vgpu_overheads(p)->of[d].read_ns,
			    0); /* so the next load or unload has nothing to compare with */
	}
	if (charged(p) != before)
		ask_later(p, now_ns, true);
}

bool vgpu_overhead_promise(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (!vgpu_account_charge(p, device, bytes)) {
		vgpu_message_limit(p, device, bytes);
		return false;
	}
	vgpu_mutex_lock(&vgpu_overheads(p)->mutex, VGPU_RANK_OVERHEAD);
	vgpu_overheads(p)->of[device].bytes += bytes;
	vgpu_overheads(p)->of[device].promised_bytes += bytes;
	vgpu_mutex_unlock(&vgpu_overheads(p)->mutex);
	return true;
}

void vgpu_overhead_unpromise(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	struct vgpu_overhead *overhead = &vgpu_overheads(p)->of[device];

	vgpu_mutex_lock(&vgpu_overheads(p)->mutex, VGPU_RANK_OVERHEAD);
	if (bytes > overhead->promised_bytes)
		bytes = overhead->promised_bytes;
	if (bytes > overhead->bytes)
		bytes = overhead->bytes;
	vgpu_account_give_back(p, device, bytes);
	overhead->promised_bytes -= bytes;
	overhead->bytes -= bytes;
	vgpu_mutex_unlock(&vgpu_overheads(p)->mutex);
}

void vgpu_overhead_end(struct vgpu_process *p, uint32_t device)
{
	vgpu_mutex_lock(&vgpu_overheads(p)->mutex, VGPU_RANK_OVERHEAD);
	vgpu_overheads(p)->of[device].promised_bytes = 0;
	vgpu_overheads(p)->of[device].is_guess = 0;
	vgpu_account_give_back(
		p, device, vgpu_overheads(p)->of[device].bytes - vgpu_overheads(p)->of[device].coming_bytes);
	vgpu_overheads(p)->of[device].bytes = vgpu_overheads(p)->of[device].coming_bytes;
	vgpu_mutex_unlock(&vgpu_overheads(p)->mutex);
}

void vgpu_overhead_coming(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	struct vgpu_overhead *overhead = &vgpu_overheads(p)->of[device];

	vgpu_mutex_lock(&vgpu_overheads(p)->mutex, VGPU_RANK_OVERHEAD);
	overhead->bytes += bytes;
	overhead->coming_bytes += bytes;
	overhead->contexts_coming++;
	vgpu_mutex_unlock(&vgpu_overheads(p)->mutex);
}

/* Returns what the driver uses for itself besides; UINT64_MAX when another context is being made. */
static uint64_t came(struct vgpu_process *p, uint32_t device, uint64_t bytes, bool give_back, bool is_guess)
{
	struct vgpu_overhead *overhead = &vgpu_overheads(p)->of[device];
	uint64_t others;

	vgpu_mutex_lock(&vgpu_overheads(p)->mutex, VGPU_RANK_OVERHEAD);
	others = overhead->contexts_coming-- == 1 ? vgpu_minus(overhead->bytes, bytes) : UINT64_MAX;
	overhead->coming_bytes -= bytes;
	overhead->is_guess |= is_guess;
	if (give_back) {
		bytes = vgpu_smaller(bytes, overhead->bytes);
		overhead->bytes -= bytes;
		vgpu_account_give_back(p, device, bytes);
	}
	vgpu_mutex_unlock(&vgpu_overheads(p)->mutex);
	return others;
}

void vgpu_overhead_not_coming(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	came(p, device, bytes, true, false);
}

bool vgpu_overhead_came(struct vgpu_process *p, uint32_t device, uint64_t bytes, uint64_t *cost_bytes)
{
	uint64_t reported, measured, more;
	bool answered = ask_nvml(p, device, &reported);
	bool later = !answered && vgpu_report_is_coming(p);
	uint64_t others = came(p, device, bytes, !answered && !later, later);
	bool fits = !answered || settle_quietly(p, device, vgpu_device_of_current(p) == (int)device, false,
						&more);

	/* It stays charged with what contexts may take until that can be asked. */
	if (later) {
		SET(vgpu_overheads(p)->of[device].measured_bytes, UINT64_MAX);
		SET(p->overhead_due_ns, 0);
		SET(p->overhead_pending, 1);
	}
	measured = answered ? GET(vgpu_overheads(p)->of[device].measured_bytes) : UINT64_MAX;
	*cost_bytes =
		measured == UINT64_MAX || others == UINT64_MAX ? UINT64_MAX : vgpu_minus(measured, others);
	return fits;
}

void vgpu_overhead_await(struct vgpu_process *p, uint32_t device)
{
	struct vgpu_overhead *overhead = &vgpu_overheads(p)->of[device];
	uint64_t since = vgpu_now_ns(), more;

	while (GET(overhead->measured_bytes) == UINT64_MAX) {
		bool comes = vgpu_report_is_coming(p) && vgpu_now_ns() - since < VGPU_MEASURED_SOON_NS;

		settle_quietly(p, device, false, true, &more);
		SET(overhead->read_ns, 0); /* free memory was not looked at */
		if (!comes)
			break;
	}
}
