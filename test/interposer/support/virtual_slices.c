/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the library asks of parts that the virtual host has not: other slices of its GPU, and devices. */
#include "driver/device.h"
#include "gate/watchdog.h"
#include "process/claims.h"
#include "process/message.h"
#include "virtual_host.h"

#include <string.h>

struct virtual_slice virtual_slice[VIRTUAL_SLICES];
struct vgpu_claim virtual_claim;
static struct vgpu_board board;
static uint32_t slices, own_percent;

void virtual_slices_begin(uint32_t count, const uint32_t percent[])
{
	memset(virtual_slice, 0, sizeof(virtual_slice));
	memset(&virtual_claim, 0, sizeof(virtual_claim));
	slices = count;
	for (uint32_t i = 0; i < count; i++)
		virtual_slice[i].percent = percent[i];
	own_percent = virtual_limits.device[0].sm_percent;
	board = (struct vgpu_board){.count = count + 1, .sequence = 2};
}

bool vgpu_claims_open(struct vgpu_seat *seat, uint32_t device)
{
	(void)device;
	if (slices == 0)
		return false;
	seat->board = &board;
	seat->mine = &virtual_claim;
	return true;
}

bool vgpu_claims_several(const struct vgpu_board *of)
{
	return of->count > 1;
}

bool vgpu_claims_are_seen(struct vgpu_seat *seat, uint64_t now_ns)
{
	(void)seat, (void)now_ns;
	return true;
}

bool vgpu_claims_board_changed(struct vgpu_seat *seat, uint32_t device, uint64_t now_ns)
{
	(void)seat, (void)device, (void)now_ns;
	return false;
}

void vgpu_claims_follow(struct vgpu_seat *seat, uint32_t device)
{
	(void)device;
	if (seat->sequence == board.sequence)
		return;
	seat->sequence = board.sequence;
	seat->weight = seat->all_weights = own_percent;
	seat->patience = VGPU_FRESH_PATIENCE;
	for (uint32_t i = 0; i < slices; i++) {
		seat->all_weights += virtual_slice[i].percent;
		seat->neighbour[i] = (struct vgpu_neighbour){.job_id = 100 + i};
		seat->party[i] = (struct vgpu_turn_party){
			.uid = i, .weight = virtual_slice[i].percent, .patience = VGPU_FRESH_PATIENCE};
	}
	seat->count = slices;
	seat->turns = true;
}

void vgpu_claims_read(struct vgpu_neighbour *neighbour, uint32_t uid, uint64_t now_ns)
{
	struct virtual_slice *slice = &virtual_slice[uid];

	slice->claim.until_ns = now_ns + 2 * MS;
	if (slice->says != NULL)
		slice->says(slice, now_ns);
	neighbour->claim = slice->claim;
}

uint32_t *vgpu_claims_bell(struct vgpu_neighbour *neighbour)
{
	return &virtual_slice[neighbour->job_id - 100].claim.bell;
}

int vgpu_device_of_ordinal(struct vgpu_process *p, CUdevice ordinal)
{
	(void)p;
	return ordinal;
}

bool vgpu_device_ask_several(struct vgpu_process *p)
{
	(void)p;
	return false;
}

bool vgpu_device_of_stream(struct vgpu_process *p, CUstream stream, CUdevice *ordinal)
{
	(void)p, (void)stream;
	*ordinal = 0;
	return true;
}

void vgpu_message_no_thread(struct vgpu_process *p)
{
	(void)p;
}

bool vgpu_watchdog_starts(struct vgpu_process *p)
{
	(void)p;
	return true;
}
