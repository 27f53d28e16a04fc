/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "process/claims.h"

#include "base/atomics.h"
#include "base/sys.h"
#include "process/trust.h"
#include "process/pages_dir.h"
#include "time/share.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* Claims that are not there are looked for again after that. */
#define SEEK_NS 10000000u
/* And own ones that are mapped are looked at that often. */
#define SEEN_NS 100000000u
/* How often a board that is being written is read again. */
#define BOARD_TRIES 1000

static int open_named(const char *name, int flags, struct stat *st)
{
	struct vgpu_pages_path path = vgpu_pages_path(name);

	return vgpu_pages_open(&path, flags, st);
}

static void *map(int fd, size_t bytes, int protection)
{
	void *page = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

	return page == MAP_FAILED ? NULL : page;
}

/* The name of a GPU's board, "" if it has none. */
struct board_name {
	char text[VGPU_UUID_BYTES];
};

static struct board_name board_name(uint32_t device)
{
	struct board_name name = {""};

	snprintf(name.text, sizeof(name.text), "%.*s", VGPU_UUID_BYTES - 1,
		 vgpu_pages.limits->device[device].uuid);
	for (size_t i = 0; i < sizeof(name.text); i++) {
		if (name.text[i] == '/')
			name.text[0] = '\0';
	}
	return name;
}

static const struct vgpu_board *open_board(struct vgpu_seat *seat, uint32_t device)
{
	const struct vgpu_board *board = NULL;
	struct board_name name = board_name(device);
	struct stat st;
	int fd;

	if (name.text[0] == '\0')
		return NULL;
	fd = open_named(name.text, O_RDONLY, &st);
	if (fd < 0)
		return NULL;
	seat->board_inode = st.st_ino;
	if (vgpu_trust_roots(fd, &st) && st.st_size >= (off_t)sizeof(*board))
		board = map(fd, sizeof(*board), PROT_READ);
	close(fd);
	if (board != NULL &&
	    (board->magic != VGPU_BOARD_MAGIC || board->layout_version != VGPU_VGPUD_VERSION ||
	     board->size_bytes != sizeof(*board))) {
		munmap((void *)board, sizeof(*board));
		board = NULL;
	}
	seat->foreign_board = board == NULL;
	return board;
}

/* The other jobs of the GPU must be able to read them. */
static bool can_be_read(const struct stat *st)
{
	return (st->st_mode & S_IROTH) && st->st_size >= (off_t)sizeof(struct vgpu_claims);
}

static struct vgpu_claim *open_own(struct vgpu_seat *seat, uint32_t device)
{
	struct vgpu_pages_path path = vgpu_pages_path(VGPU_CLAIMS_FILE);
	struct vgpu_claims *claims = NULL;
	struct stat st;
	int fd = vgpu_pages_open(&path, O_RDWR, &st);

	if (fd < 0)
		return NULL;
	if (can_be_read(&st) && vgpu_trust_users(&st, vgpu_pages.limits->uid, true))
		claims = map(fd, sizeof(*claims), PROT_READ | PROT_WRITE);
	close(fd);
	if (claims == NULL || claims->magic != VGPU_CLAIMS_MAGIC ||
	    claims->layout_version != VGPU_VGPUD_VERSION || claims->size_bytes != sizeof(*claims) ||
	    claims->job_id != vgpu_pages.limits->job_id)
		return NULL;
	seat->mine_inode = st.st_ino;
	return &claims->claim[device];
}

/* By a look at the file, which takes no descriptor: the program may have used up its own. Where there is none
 * to look at, it is not the user who has taken it away, as the folder is root's. */
bool vgpu_claims_are_seen(struct vgpu_seat *seat, uint64_t now_ns)
{
	struct stat st;

	if (now_ns - seat->mine_seen_ns < SEEN_NS)
		return seat->mine_seen;
	seat->mine_seen_ns = now_ns;
	seat->mine_seen = vgpu_lstat(vgpu_pages_path(VGPU_CLAIMS_FILE).text, &st) != 0 ||
			  (vgpu_pages_is_owners_alone(&st) && can_be_read(&st) &&
			   st.st_ino == seat->mine_inode);
	return seat->mine_seen;
}

bool vgpu_claims_open(struct vgpu_seat *seat, uint32_t device)
{
	if (seat->tried == 0) {
		seat->tried = 1;
		seat->board = open_board(seat, device);
		if (seat->board != NULL)
			seat->mine = open_own(seat, device);
		seat->patience = VGPU_FRESH_PATIENCE;
		seat->sequence = UINT32_MAX; /* odd, so never that of a board at rest */
	}
	return seat->board != NULL && seat->mine != NULL;
}

/* Another release was installed, and has put a board of its own in place: this one is told nothing more. */
bool vgpu_claims_board_changed(struct vgpu_seat *seat, uint32_t device, uint64_t now_ns)
{
	struct board_name name = board_name(device);
	const struct vgpu_board *board;
	struct stat st;

	if (now_ns - seat->board_seen_ns < SEEN_NS || name.text[0] == '\0')
		return false;
	seat->board_seen_ns = now_ns;
	if (vgpu_lstat(vgpu_pages_path(name.text).text, &st) != 0 || st.st_ino == seat->board_inode)
		return false;
	board = open_board(seat, device);
	if (board == NULL)
		return true;
	/* The one before stays mapped: a thread may be looking at it. */
	__atomic_store_n(&seat->board, board, __ATOMIC_RELEASE);
	seat->sequence = UINT32_MAX;
	if (seat->mine == NULL)
		seat->mine = open_own(seat, device);
	return true;
}

/* Word by word, each acquired, so that the board's sequence is looked at after them. */
static void read_slices(struct vgpu_board_slice *slice, const struct vgpu_board *board, uint32_t count)
{
	const uint32_t *from = (const uint32_t *)board->slice;
	uint32_t *to = (uint32_t *)slice;

	for (size_t i = 0; i < count * (sizeof(*slice) / sizeof(*to)); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
}

/* The slices as they stood at one moment; false while root is writing. */
static bool read_board(const struct vgpu_board *board,
		       struct vgpu_board_slice slice[static VGPU_BOARD_SLICES], uint32_t *count,
		       uint32_t *sequence)
{
	*sequence = __atomic_load_n(&board->sequence, __ATOMIC_ACQUIRE);
	*count = GET(board->count);
	if (*count > VGPU_BOARD_SLICES)
		*count = VGPU_BOARD_SLICES;
	read_slices(slice, board, *count);
	return *sequence % 2 == 0 && __atomic_load_n(&board->sequence, __ATOMIC_RELAXED) == *sequence;
}

/* A writer is done in microseconds; one that was killed is not, and what it left says as much as there is. */
static bool is_on_board(const struct vgpu_board *board, uint32_t device)
{
	struct vgpu_board_slice slice[VGPU_BOARD_SLICES];
	uint32_t count, sequence;

	for (int try = 0; try < BOARD_TRIES && !read_board(board, slice, &count, &sequence); try++)
		sched_yield();
	for (uint32_t i = 0; i < count; i++) {
		if (slice[i].job_id == vgpu_pages.limits->job_id && slice[i].device == device)
			return true;
	}
	return false;
}

bool vgpu_claims_ready(struct vgpu_process *p)
{
	uint32_t count = GET(vgpu_pages.limits->device_count);

	for (uint32_t d = 0; d < VGPU_MAX_DEVICES && d < count; d++) {
		struct vgpu_seat *seat = vgpu_seat(p, d);

		if (!vgpu_claims_open(seat, d) && seat->board != NULL && is_on_board(seat->board, d))
			return false;
	}
	return true;
}

bool vgpu_claims_several(const struct vgpu_board *board)
{
	uint32_t count = GET(board->count);
	bool capped = false;

	for (uint32_t i = 0; i < count && i < VGPU_BOARD_SLICES; i++)
		capped = capped || vgpu_share_is_capped(GET(board->slice[i].sm_percent));
	return count >= 2 && capped && !vgpu_claims_are_kept(board);
}

static void forget(struct vgpu_neighbour *neighbour)
{
	if (neighbour->mapped != NULL)
		munmap((void *)neighbour->mapped, sizeof(*neighbour->mapped));
}

/* Opens a neighbour's claims, which are its user's. No descriptor stays open: the program may close it. */
static void meet(struct vgpu_neighbour *neighbour, uint32_t uid, uint64_t now_ns)
{
	char name[32];
	struct stat st;
	int fd;

	neighbour->sought_ns = now_ns;
	snprintf(name, sizeof(name), "%u/" VGPU_CLAIMS_FILE, neighbour->job_id);
	fd = open_named(name, O_RDONLY, &st);
	if (fd < 0)
		return;
	if (vgpu_trust_users(&st, uid, uid == vgpu_pages.limits->uid))
		neighbour->mapped = map(fd, sizeof(*neighbour->mapped), PROT_READ);
	close(fd);
}

/* Patience is with users: a new job of one who is known begins with what is left of it. */
static struct vgpu_turn_patience patience_with(const struct vgpu_turn_party *known, uint32_t count,
					       uint32_t uid)
{
	for (uint32_t k = 0; k < count; k++) {
		if (known[k].uid == uid)
			return known[k].patience;
	}
	return VGPU_FRESH_PATIENCE;
}

static void sit_down(struct vgpu_seat *seat, uint32_t device, const struct vgpu_board_slice *slice,
		     uint32_t count)
{
	struct vgpu_turn_party known[VGPU_NEIGHBOURS];
	uint32_t known_count = seat->count, capped = 0, uncapped = 0, rest;

	memcpy(known, seat->party, sizeof(known));
	/* All are met anew: a job that was requeued has other claims than before. */
	for (uint32_t k = 0; k < known_count; k++)
		forget(&seat->neighbour[k]);
	for (uint32_t i = 0; i < count; i++) {
		capped += vgpu_share_is_capped(slice[i].sm_percent) ? slice[i].sm_percent : 0;
		uncapped += !vgpu_share_is_capped(slice[i].sm_percent);
	}
	rest = vgpu_turn_weight_without_cap(capped, uncapped);
	__atomic_store_n(&seat->count, 0, __ATOMIC_RELAXED);
	seat->strangers = false;
	seat->weight = seat->all_weights = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t weight = vgpu_share_is_capped(slice[i].sm_percent) ? slice[i].sm_percent : rest;

		seat->all_weights += weight;
		if (slice[i].job_id == vgpu_pages.limits->job_id && slice[i].device == device) {
			seat->weight = weight;
			continue;
		}
		if (slice[i].turns_version != VGPU_VGPUD_VERSION) {
			seat->strangers = true;
			continue;
		}
		if (seat->count == VGPU_NEIGHBOURS)
			continue;
		seat->neighbour[seat->count] =
			(struct vgpu_neighbour){.job_id = slice[i].job_id, .device = slice[i].device};
		seat->party[seat->count] =
			(struct vgpu_turn_party){.uid = slice[i].uid,
						 .weight = weight,
						 .patience = patience_with(known, known_count, slice[i].uid)};
		__atomic_fetch_add(&seat->count, 1, __ATOMIC_RELAXED);
	}
	/* Where nobody has a share to keep, nobody needs turns: the driver shares time out. Nor where vgpud
	 * keeps them. */
	seat->turns = capped != 0 && !vgpu_claims_are_kept(seat->board);
}

void vgpu_claims_follow(struct vgpu_seat *seat, uint32_t device)
{
	struct vgpu_board_slice slice[VGPU_BOARD_SLICES];
	uint32_t sequence, count;

	/* Odd for long means that the writer was killed: what was known before is as good. */
	if (__atomic_load_n(&seat->board->sequence, __ATOMIC_ACQUIRE) == seat->sequence ||
	    !read_board(seat->board, slice, &count, &sequence))
		return;
	seat->sequence = sequence;
	sit_down(seat, device, slice, count);
}

/* By the kernel: where the owner has cut its file, it answers EFAULT, while a look would be SIGBUS. */
void vgpu_claims_read(struct vgpu_neighbour *neighbour, uint32_t uid, uint64_t now_ns)
{
	struct iovec to = {&neighbour->claim, sizeof(neighbour->claim)};
	struct iovec from = {NULL, sizeof(neighbour->claim)};

	/* A new slice is on the board before its claims are there. */
	if (neighbour->mapped == NULL && now_ns - neighbour->sought_ns >= SEEK_NS)
		meet(neighbour, uid, now_ns);
	if (neighbour->mapped != NULL && neighbour->device < VGPU_MAX_DEVICES) {
		from.iov_base = (void *)&neighbour->mapped->claim[neighbour->device];
		if (syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0) ==
		    (long)sizeof(neighbour->claim))
			return;
	}
	neighbour->claim = (struct vgpu_claim){0};
}

uint32_t *vgpu_claims_bell(struct vgpu_neighbour *neighbour)
{
	return (uint32_t *)&neighbour->mapped->claim[neighbour->device].bell;
}
