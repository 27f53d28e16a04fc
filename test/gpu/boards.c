/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Boards and claims, through which the slices of one GPU take turns. One mkstep writes at a time. */
#include "mkstep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int make_claims(const struct vgpu_limits *limits)
{
	struct vgpu_claims *claims;
	char path[512];

	if (mkdir(limits->pages_dir, 0755) != 0 && errno != EEXIST)
		return complain(limits->pages_dir);
	snprintf(path, sizeof(path), "%s/%u", limits->pages_dir, limits->job_id);
	if (mkdir(path, 0755) != 0 && errno != EEXIST)
		return complain(path);
	snprintf(path, sizeof(path), "%s/" VGPU_CLAIMS_FILE, limits->pages_dir);
	claims = map_page(path, sizeof(*claims), O_RDWR | O_CREAT, 0644);
	if (claims == NULL || chown(path, (uid_t)limits->uid, (gid_t)-1) != 0)
		return complain(path);
	*claims = (struct vgpu_claims){
		.magic = VGPU_CLAIMS_MAGIC,
		.layout_version = VGPU_VGPUD_VERSION,
		.size_bytes = sizeof(*claims),
		.job_id = limits->job_id,
		.device_count = limits->device_count,
	};
	munmap(claims, sizeof(*claims));
	return 0;
}

int make_groups(const struct vgpu_limits *limits)
{
	struct vgpu_groups *groups;
	char path[512];

	snprintf(path, sizeof(path), "%s/" VGPU_GROUPS_FILE, limits->pages_dir);
	groups = map_page(path, sizeof(*groups), O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (groups == NULL || chown(path, (uid_t)limits->uid, (gid_t)-1) != 0)
		return complain(path);
	groups->magic = VGPU_GROUPS_MAGIC;
	groups->layout_version = VGPU_VGPUD_VERSION;
	groups->size_bytes = sizeof(*groups);
	groups->job_id = limits->job_id;
	munmap(groups, sizeof(*groups));
	return 0;
}

/* The place of the job's slice, a new one when it has none; NULL when the board is full. */
static struct vgpu_board_slice *slice_of(struct vgpu_board *board, uint32_t job_id, uint32_t device)
{
	for (uint32_t i = 0; i < board->count; i++)
		if (board->slice[i].job_id == job_id && board->slice[i].device == device)
			return &board->slice[i];
	return board->count < VGPU_BOARD_SLICES ? &board->slice[board->count++] : NULL;
}

static int put_on_board(const struct vgpu_limits *limits, uint32_t device)
{
	struct vgpu_board_slice *slice;
	struct vgpu_board *board;
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", limits->pages_dir, limits->device[device].uuid);
	board = map_page(path, sizeof(*board), O_RDWR | O_CREAT, 0644);
	if (board == NULL)
		return complain(path);
	board->magic = VGPU_BOARD_MAGIC;
	board->layout_version = VGPU_VGPUD_VERSION;
	board->size_bytes = sizeof(*board);
	__atomic_add_fetch(&board->sequence, 1, __ATOMIC_ACQ_REL);
	slice = slice_of(board, limits->job_id, device);
	if (slice != NULL)
		*slice = (struct vgpu_board_slice){
			.job_id = limits->job_id,
			.device = device,
			.sm_percent = limits->device[device].job_sm_percent,
			.flags = limits->flags & VGPU_ELASTIC,
			.uid = limits->uid,
			.turns_version = VGPU_VGPUD_VERSION,
		};
	__atomic_add_fetch(&board->sequence, 1, __ATOMIC_ACQ_REL);
	munmap(board, sizeof(*board));
	errno = ENOSPC;
	return slice != NULL ? 0 : complain(path);
}

int put_on_boards(const struct vgpu_limits *limits)
{
	for (uint32_t d = 0; d < limits->device_count; d++)
		if (put_on_board(limits, d) != 0)
			return 1;
	return 0;
}
