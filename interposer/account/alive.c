/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "account/alive.h"

#include "base/atomics.h"
#include "base/sys.h"
#include "tuning.h"

#include <sys/mman.h>

static int open_ledger(void)
{
	const char *path = vgpu_pages.ledger_path;

	return path == NULL ? -1 : open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

/* fcntl has another name in newer C libraries. */
static bool ask_slot_lock(int fd, int command, struct flock *lock, uint32_t slot)
{
	*lock = (struct flock){
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = VGPU_LOCKS_AT + slot, .l_len = 1};
	return syscall(SYS_fcntl, fd, command, lock) == 0;
}

void vgpu_alive_begin(struct vgpu_process *p)
{
	uint32_t slot = GET(p->slot);
	int fd = open_ledger();
	struct flock lock;
	void *page;

	if (fd < 0)
		return;
	page = mmap(NULL, VGPU_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (page != MAP_FAILED && ask_slot_lock(fd, F_OFD_SETLK, &lock, slot))
		SET(vgpu_pages.ledger->slot[slot].has_lock, 1);
	else if (page != MAP_FAILED)
		munmap(page, VGPU_PAGE_BYTES);
	close(fd);
}

enum vgpu_alive vgpu_alive_ask(uint32_t slot)
{
	struct flock lock;
	bool over;
	int fd;

	if (GET(vgpu_pages.ledger->slot[slot].has_lock) != 1)
		return VGPU_ALIVE_UNKNOWN;
	fd = open_ledger();
	if (fd < 0)
		return VGPU_ALIVE_HELD;
	over = ask_slot_lock(fd, F_OFD_GETLK, &lock, slot) && lock.l_type == F_UNLCK;
	close(fd);
	return over ? VGPU_ALIVE_OVER : VGPU_ALIVE_HELD;
}
