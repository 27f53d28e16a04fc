/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a second process opens: it is to be charged once, to whoever allocated it. */
#include "parts.h"
#include "witness.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum order { OPEN_IPC, OPEN_FD, LOOK, CLOSE };

struct message {
	enum order order;
	CUipcMemHandle handle;
	uint64_t bytes;
};

static int to_importer = -1;
static pid_t importer;
static CUdeviceptr held;
static CUmemGenericAllocationHandle owned;
static uint64_t held_bytes;
static char note[96];

static int send_message(int fd, const struct message *m, int passed)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { (void *)m, sizeof(*m) };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

	if (passed >= 0) {
		struct cmsghdr *c;

		header.msg_control = control;
		header.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&header);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &passed, sizeof(int));
	}
	return sendmsg(fd, &header, MSG_NOSIGNAL) == (ssize_t)sizeof(*m) ? 0 : PATH_BROKEN;
}

/* False at the end of the conversation; *passed is -1 when no descriptor came along. */
static bool receive_message(int fd, struct message *m, int *passed)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec part = { m, sizeof(*m) };
	struct msghdr header = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c;

	*passed = -1;
	if (recvmsg(fd, &header, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*m))
		return false;
	c = CMSG_FIRSTHDR(&header);
	if (c != NULL && c->cmsg_type == SCM_RIGHTS)
		memcpy(passed, CMSG_DATA(c), sizeof(int));
	return true;
}

static int answer(void)
{
	int error;

	return recv(to_importer, &error, sizeof(error), 0) == (ssize_t)sizeof(error) ? error : PATH_BROKEN;
}

static int start(void)
{
	char number[16];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return PATH_BROKEN;
	importer = fork();
	if (importer == 0) {
		fcntl(pair[1], F_SETFD, 0);
		snprintf(number, sizeof(number), "%d", pair[1]);
		execl(the_program, the_program, "--importer", number, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	to_importer = pair[0];
	return importer > 0 ? answer() : PATH_BROKEN;
}

static int start_ipc(void)
{
	NEEDS(cuIpcOpenMemHandle_v2);
	return start();
}

static int start_fd(void)
{
	NEEDS(cuMemImportFromShareableHandle);
	return start();
}

static int take_ipc(uint64_t bytes)
{
	struct message m = { .order = OPEN_IPC, .bytes = bytes };
	int error = (int)cu.cuMemAlloc_v2(&held, bytes);

	if (error != 0)
		return error;
	held_bytes = bytes;
	error = (int)cu.cuIpcGetMemHandle(&m.handle, held);
	if (error == 0 && (error = send_message(to_importer, &m, -1)) == 0)
		error = answer();
	if (error != 0)
		cu.cuMemFree_v2(held);
	return error;
}

static void close_importer(void)
{
	struct message m = { .order = CLOSE };

	if (send_message(to_importer, &m, -1) == 0)
		answer();
}

static void give_ipc(void)
{
	close_importer();
	cu.cuMemFree_v2(held);
}

static int say_importer(void)
{
	struct witness_said said = witness_ask(importer);

	if (said.process != WITNESS_UNKNOWN)
		snprintf(note, sizeof(note), "the importer really has %.1f MiB", (double)said.process / MIB);
	return 0;
}

static int touch_ipc(void)
{
	say_importer();
	return touch_bytes(held, held_bytes);
}

static int take_fd(uint64_t bytes)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = the_device },
	};
	struct message m = { .order = OPEN_FD, .bytes = bytes };
	int fd = -1;
	int error = (int)cu.cuMemCreate(&owned, bytes, &prop, 0);

	if (error != 0)
		return error;
	held_bytes = bytes;
	error = (int)cu.cuMemExportToShareableHandle(&fd, owned, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (error == 0 && (error = send_message(to_importer, &m, fd)) == 0)
		error = answer();
	if (fd >= 0)
		close(fd);
	if (error != 0)
		cu.cuMemRelease(owned);
	return error;
}

static void give_fd(void)
{
	close_importer();
	cu.cuMemRelease(owned);
}

/* Only the importer keeps the memory then, and is charged for it when it next allocates. */
static int take_left(uint64_t bytes)
{
	struct message m = { .order = LOOK };
	int error = take_fd(bytes);

	if (error != 0 || (error = (int)cu.cuMemRelease(owned)) != 0)
		return error;
	error = send_message(to_importer, &m, -1);
	return error != 0 ? error : answer();
}

/* ---- what a descriptor alone keeps, in this process ---- */

static int kept_fd = -1;

/* Whether descriptors have files of their own, by which duplicates are told. */
static int say_file(void)
{
	struct stat st;

	if (fstat(kept_fd, &st) == 0)
		snprintf(note, sizeof(note), "a descriptor is a %s, device %u, inode %llu",
			 S_ISCHR(st.st_mode) ? "character device" : "file", (unsigned int)st.st_dev,
			 (unsigned long long)st.st_ino);
	return 0;
}

static int take_kept_handle(uint64_t bytes)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = the_device },
	};
	int error = (int)cu.cuMemCreate(&owned, bytes, &prop, 0);

	if (error != 0)
		return error;
	error = (int)cu.cuMemExportToShareableHandle(&kept_fd, owned,
						     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	cu.cuMemRelease(owned);
	return error;
}

static int start_kept_handle(void)
{
	NEEDS(cuMemExportToShareableHandle);
	return 0;
}

static int take_kept_range(uint64_t bytes)
{
	int error = (int)cu.cuMemAlloc_v2(&held, bytes);

	if (error != 0)
		return error;
	error = (int)cu.cuMemGetHandleForAddressRange(&kept_fd, held, bytes,
						      CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	cu.cuMemFree_v2(held);
	return error;
}

static int start_kept_range(void)
{
	NEEDS(cuMemGetHandleForAddressRange);
	return 0;
}

static void close_kept(void)
{
	close(kept_fd);
	kept_fd = -1;
}

/* ---- the second process ---- */

static int open_fd(int fd, uint64_t bytes)
{
	const CUmemAccessDesc access = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = the_device },
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	int error = (int)cu.cuMemImportFromShareableHandle(&owned, (void *)(uintptr_t)fd,
							   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (error != 0)
		return error;
	held_bytes = bytes;
	error = (int)cu.cuMemAddressReserve(&held, bytes, 0, 0, 0);
	if (error == 0 && (error = (int)cu.cuMemMap(held, bytes, 0, owned, 0)) == 0)
		error = (int)cu.cuMemSetAccess(held, bytes, &access, 1);
	return error;
}

static int close_all(bool by_handle)
{
	int error;

	if (!by_handle)
		return (int)cu.cuIpcCloseMemHandle(held);
	error = (int)cu.cuMemUnmap(held, held_bytes);
	cu.cuMemAddressFree(held, held_bytes);
	return error != 0 ? error : (int)cu.cuMemRelease(owned);
}

/* An allocation asks the driver anew 100 ms after the last time. There need not be room for it. */
static void look(void)
{
	CUdeviceptr little;

	usleep(150000);
	if (cu.cuMemAlloc_v2(&little, GRANULE) == CUDA_SUCCESS)
		cu.cuMemFree_v2(little);
}

int shared_importer(int fd)
{
	int error = cuda_load() ? (int)cuda_begin(&the_device) : PATH_BROKEN;
	bool by_handle = false;
	struct message m;
	int passed;

	while (send(fd, &error, sizeof(error), MSG_NOSIGNAL) > 0 && receive_message(fd, &m, &passed)) {
		if (m.order == LOOK) {
			look();
			continue;
		}
		if (m.order == OPEN_IPC)
			error = (int)cu.cuIpcOpenMemHandle_v2(&held, m.handle,
							      CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		else if (m.order == OPEN_FD)
			error = open_fd(passed, m.bytes);
		else
			error = close_all(by_handle);
		by_handle = m.order == OPEN_FD;
		if (passed >= 0)
			close(passed);
	}
	return 0;
}

struct path shared_paths[] = {
	{ .name = "cuIpcOpenMemHandle elsewhere", .granule = GRANULE, .flags = PATH_SHARED, .start = start_ipc, .take = take_ipc, .give = give_ipc, .touch = touch_ipc, .note = note },
	{ .name = "fd imported elsewhere", .granule = GRANULE, .flags = PATH_SHARED, .start = start_fd, .take = take_fd, .give = give_fd, .touch = say_importer, .note = note },
	{ .name = "fd imported, owner released", .granule = GRANULE, .flags = PATH_SHARED, .start = start_fd, .take = take_left, .give = close_importer, .touch = say_importer, .note = note },
	{ .name = "fd kept, handle released", .granule = GRANULE, .flags = PATH_MANAGED, .start = start_kept_handle,
	  .take = take_kept_handle, .give = close_kept, .touch = say_file, .note = note },
	{ .name = "dma-buf kept, block freed", .granule = GRANULE, .flags = PATH_MANAGED, .start = start_kept_range,
	  .take = take_kept_range, .give = close_kept, .touch = say_file, .note = note },
	{ .name = NULL },
};
