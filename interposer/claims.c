/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "claims.h"

#include "atomics.h"
#include "share.h"
#include "step.h"
#include "sys.h"
#include "turn.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define FOREIGN_WRITE 022
/* What a slice without a cap counts for beside others, at least. */
#define LEAST_WEIGHT 10u
/* Claims that are not there are looked for again after that. */
#define SEEK_NS 10000000u

static int open_in_turns_dir(const char *name, int flags, struct stat *st)
{
	char path[VGPU_PATH_BYTES + VGPU_UUID_BYTES + 1];
	const char *dir = vgpu_pages.limits->turns_dir;
	int fd;

	if (dir[0] != '/' || strnlen(dir, VGPU_PATH_BYTES) == VGPU_PATH_BYTES)
		return -1;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && (vgpu_fstat(fd, st) != 0 || !S_ISREG(st->st_mode) || (st->st_mode & FOREIGN_WRITE))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void *map(int fd, size_t bytes, int protection)
{
	void *page = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

	return page == MAP_FAILED ? NULL : page;
}

static const struct vgpu_board *open_board(uint32_t device)
{
	const struct vgpu_board *board = NULL;
	char uuid[VGPU_UUID_BYTES];
	struct stat st;
	int fd;

	snprintf(uuid, sizeof(uuid), "%.*s", VGPU_UUID_BYTES - 1, vgpu_pages.limits->device[device].uuid);
	if (uuid[0] == '\0' || strchr(uuid, '/') != NULL)
		return NULL;
	fd = open_in_turns_dir(uuid, O_RDONLY, &st);
	if (fd < 0)
		return NULL;
	if (vgpu_step_trusts(st.st_uid) && st.st_size >= (off_t)sizeof(*board))
		board = map(fd, sizeof(*board), PROT_READ);
	close(fd);
	if (board != NULL && (board->magic != VGPU_BOARD_MAGIC || board->layout_version != VGPU_LAYOUT_VERSION ||
			      board->size_bytes != sizeof(*board))) {
		munmap((void *)board, sizeof(*board));
		board = NULL;
	}
	return board;
}

static struct vgpu_claim *open_own(uint32_t device)
{
	struct vgpu_claims *claims = NULL;
	char name[16];
	struct stat st;
	int fd;

	snprintf(name, sizeof(name), "%u", vgpu_pages.limits->job_id);
	fd = open_in_turns_dir(name, O_RDWR, &st);
	if (fd < 0)
		return NULL;
	if ((st.st_uid == vgpu_pages.limits->uid || vgpu_step_trusts(st.st_uid)) && st.st_size >= (off_t)sizeof(*claims))
		claims = map(fd, sizeof(*claims), PROT_READ | PROT_WRITE);
	close(fd);
	if (claims == NULL || claims->magic != VGPU_CLAIMS_MAGIC || claims->layout_version != VGPU_LAYOUT_VERSION ||
	    claims->size_bytes != sizeof(*claims))
		return NULL;
	return &claims->claim[device];
}

bool vgpu_claims_open(struct vgpu_seat *seat, uint32_t device)
{
	if (seat->tried == 0) {
		seat->tried = 1;
		seat->board = open_board(device);
		if (seat->board != NULL)
			seat->mine = open_own(device);
		seat->sequence = UINT32_MAX; /* odd, so never that of a board at rest */
	}
	return seat->board != NULL && seat->mine != NULL;
}

bool vgpu_claims_several(const struct vgpu_board *board)
{
	uint32_t count = GET(board->count);
	bool capped = false;

	for (uint32_t i = 0; i < count && i < VGPU_BOARD_SLICES; i++)
		capped = capped || vgpu_share_is_capped(GET(board->slice[i].sm_percent));
	return count >= 2 && capped;
}

static void forget(struct vgpu_neighbour *neighbour)
{
	if (neighbour->mapped != NULL)
		munmap((void *)neighbour->mapped, sizeof(*neighbour->mapped));
}

/* Opens a neighbour's claims, which are its user's. No descriptor stays open: the program may close it. */
static void meet(struct vgpu_neighbour *neighbour, uint64_t now_ns)
{
	char name[16];
	struct stat st;
	int fd;

	neighbour->sought_ns = now_ns;
	snprintf(name, sizeof(name), "%u", neighbour->job_id);
	fd = open_in_turns_dir(name, O_RDONLY, &st);
	if (fd < 0)
		return;
	if (st.st_uid == neighbour->uid || vgpu_step_trusts(st.st_uid))
		neighbour->mapped = map(fd, sizeof(*neighbour->mapped), PROT_READ);
	close(fd);
}

static void sit_down(struct vgpu_seat *seat, uint32_t device, const struct vgpu_board_slice *slice, uint32_t count)
{
	struct vgpu_neighbour old[VGPU_NEIGHBOURS];
	uint32_t old_count = seat->count, capped = 0, uncapped = 0, rest;

	memcpy(old, seat->neighbour, sizeof(old));
	for (uint32_t i = 0; i < count; i++) {
		capped += vgpu_share_is_capped(slice[i].sm_percent) ? slice[i].sm_percent : 0;
		uncapped += !vgpu_share_is_capped(slice[i].sm_percent);
	}
	rest = capped < 100 && uncapped != 0 ? (100 - capped) / uncapped : 0;
	rest = rest < LEAST_WEIGHT ? LEAST_WEIGHT : rest;
	__atomic_store_n(&seat->count, 0, __ATOMIC_RELAXED);
	seat->weight = seat->all_weights = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t weight = vgpu_share_is_capped(slice[i].sm_percent) ? slice[i].sm_percent : rest;
		struct vgpu_neighbour *neighbour = &seat->neighbour[seat->count];
		seat->all_weights += weight;
		if (slice[i].job_id == vgpu_pages.limits->job_id && slice[i].device == device) {
			seat->weight = weight;
			continue;
		}
		if (seat->count == VGPU_NEIGHBOURS)
			continue;
		*neighbour = (struct vgpu_neighbour){.job_id = slice[i].job_id, .device = slice[i].device, .uid = slice[i].uid,
						     .sm_percent = weight, .patience_ns = VGPU_PATIENCE_NS};
		for (uint32_t k = 0; k < old_count; k++) {
			if (old[k].job_id == slice[i].job_id && old[k].device == slice[i].device)
				neighbour->patience_ns = old[k].patience_ns;
		}
		__atomic_fetch_add(&seat->count, 1, __ATOMIC_RELAXED);
	}
	/* All are met anew: a job that was requeued has other claims than before. */
	for (uint32_t k = 0; k < old_count; k++)
		forget(&old[k]);
	/* Where nobody has a share to keep, nobody needs turns: the driver shares time out. */
	if (capped == 0)
		seat->weight = 0;
}

/* Word by word, each acquired, so that the board's sequence is looked at after them. */
static void read_slices(struct vgpu_board_slice *slice, const struct vgpu_board *board, uint32_t count)
{
	const uint32_t *from = (const uint32_t *)board->slice;
	uint32_t *to = (uint32_t *)slice;

	for (size_t i = 0; i < count * (sizeof(*slice) / sizeof(*to)); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
}

void vgpu_claims_follow(struct vgpu_seat *seat, uint32_t device)
{
	struct vgpu_board_slice slice[VGPU_BOARD_SLICES];
	uint32_t sequence = __atomic_load_n(&seat->board->sequence, __ATOMIC_ACQUIRE);
	uint32_t count = GET(seat->board->count);

	/* Odd for long means that the writer was killed: what was known before is as good. */
	if (sequence == seat->sequence || sequence % 2 != 0)
		return;
	if (count > VGPU_BOARD_SLICES)
		count = VGPU_BOARD_SLICES;
	read_slices(slice, seat->board, count);
	if (__atomic_load_n(&seat->board->sequence, __ATOMIC_RELAXED) != sequence)
		return;
	seat->sequence = sequence;
	sit_down(seat, device, slice, count);
}

/* By the kernel: where the owner has cut its file, it answers EFAULT, while a look would be SIGBUS. */
void vgpu_claims_read(struct vgpu_neighbour *neighbour, uint64_t now_ns)
{
	struct iovec to = {&neighbour->claim, sizeof(neighbour->claim)};
	struct iovec from = {NULL, sizeof(neighbour->claim)};

	/* A new slice is on the board before its claims are there. */
	if (neighbour->mapped == NULL && now_ns - neighbour->sought_ns >= SEEK_NS)
		meet(neighbour, now_ns);
	if (neighbour->mapped != NULL && neighbour->device < VGPU_MAX_DEVICES) {
		from.iov_base = (void *)&neighbour->mapped->claim[neighbour->device];
		if (syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0) == (long)sizeof(neighbour->claim))
			return;
	}
	neighbour->claim = (struct vgpu_claim){0};
}

uint32_t *vgpu_claims_bell(struct vgpu_neighbour *neighbour)
{
	if (neighbour->mapped == NULL || neighbour->device >= VGPU_MAX_DEVICES)
		return NULL;
	return (uint32_t *)&neighbour->mapped->claim[neighbour->device].bell;
}
