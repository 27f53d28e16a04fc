/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that several processes use is charged once, to the process that made it. */
#include "harness.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer);

static struct step step;

static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					      .requestedHandleTypes =
						      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static uint64_t used(void)
{
	return step_used_bytes(&step);
}

static void begin(uint64_t step_mib)
{
	gpus(0);
	step = step_make(100 + (uint32_t)getpid(), 0, step_mib, step_mib);
	cuda_begin(0);
}

static const char *handle_path(void)
{
	static char path[300];

	snprintf(path, sizeof(path), "%s/ipc-handle", getenv("VGPU_TEST_ROOT"));
	return path;
}

static void write_handle(const CUipcMemHandle *handle)
{
	FILE *file = fopen(handle_path(), "w");

	CHECK(file != NULL && fwrite(handle, sizeof(*handle), 1, file) == 1);
	fclose(file);
}

/* The other process: what it opens costs its job no more than 10 MiB, which it has left. */
static int open_handle(void)
{
	CUdeviceptr first, second, own;
	size_t free_bytes, total_bytes;
	CUipcMemHandle handle;
	FILE *file;

	cuda_begin(0);
	file = fopen(handle_path(), "r");
	CHECK(file != NULL && fread(&handle, sizeof(handle), 1, file) == 1);
	fclose(file);
	CHECK_IS(cuIpcOpenMemHandle_v2(&first, handle, 1), CUDA_SUCCESS);
	CHECK_IS(cuIpcOpenMemHandle(&second, handle, 1), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 10 * MIB);
	CHECK_IS(cuMemAlloc_v2(&own, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&own, 10 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemFree_v2(first) != CUDA_SUCCESS);
	CHECK_IS(cuIpcCloseMemHandle(first), CUDA_SUCCESS);
	CHECK_IS(cuIpcCloseMemHandle(second), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 0);
	return failures;
}

static void opened_memory_is_charged_to_its_owner_only(void)
{
	CUipcMemHandle handle;
	CUdeviceptr a, b;

	begin(100);
	CHECK_IS(cuMemAlloc_v2(&a, 90 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuIpcGetMemHandle(&handle, a), CUDA_SUCCESS);
	write_handle(&handle);
	CHECK_IS(run_self("open"), 0);
	/* The other process has closed it and has gone; it is still the owner's. */
	CHECK_IS(cuMemAlloc_v2(&b, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 100 * MIB);
	CHECK(cuIpcOpenMemHandle_v2(&b, handle, 1) != CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(used(), 10 * MIB);
}

static void memory_of_another_job_costs_that_job(void)
{
	CUipcMemHandle handle;
	struct step other;
	CUdeviceptr a;

	begin(100);
	other = step_make(200000 + (uint32_t)getpid(), 0, 10, 10);
	step_enter(&step);
	CHECK_IS(cuMemAlloc_v2(&a, 90 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuIpcGetMemHandle(&handle, a), CUDA_SUCCESS);
	write_handle(&handle);
	step_enter(&other);
	CHECK_IS(run_self("open"), 0);
	CHECK_IS(used(), 90 * MIB);
	CHECK_IS(other.ledger->peak_bytes[0], 10 * MIB);
}

/* The other process imports what is behind descriptor 77. */
static int import(void)
{
	CUmemGenericAllocationHandle handle;
	size_t free_bytes, total_bytes;
	CUdeviceptr address;

	cuda_begin(0);
	CHECK_IS(
		cuMemImportFromShareableHandle(&handle, (void *)77, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		CUDA_SUCCESS);
	CHECK_IS(cuMemAddressReserve(&address, 60 * MIB, 0, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemMap(address, 60 * MIB, 0, handle, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 40 * MIB);
	CHECK_IS(cuMemUnmap(address, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(handle), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 40 * MIB);
	return failures;
}

static void an_import_costs_nothing_and_frees_nothing(void)
{
	CUmemGenericAllocationHandle a;
	int fd;

	begin(100);
	CHECK_IS(cuMemCreate(&a, 60 * MIB, &shareable, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	CHECK_IS(dup2(fd, 77), 77);
	CHECK_IS(run_self("import"), 0);
	CHECK_IS(used(), 60 * MIB);
	close(fd);
	close(77);
	CHECK_IS(cuMemRelease(a), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void a_duplicate_of_a_descriptor_is_the_same_memory(void)
{
	CUmemGenericAllocationHandle a, again;
	int fd, copy;

	begin(100);
	CHECK_IS(cuMemCreate(&a, 60 * MIB, &shareable, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	copy = dup(fd);
	CHECK_IS(close(fd), 0);
	CHECK_IS(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)copy,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		 CUDA_SUCCESS);
	CHECK_IS(close(copy), 0);
	CHECK_IS(cuMemRelease(a), CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(cuMemRelease(again), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void what_a_process_imports_from_itself_stays_charged(void)
{
	CUmemGenericAllocationHandle a, again;
	CUdeviceptr address;
	int fd;

	begin(100);
	CHECK_IS(cuMemCreate(&a, 60 * MIB, &shareable, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	CHECK_IS(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		 CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(close(fd), 0);
	CHECK_IS(cuMemRelease(a), CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(cuMemAddressReserve(&address, 60 * MIB, 0, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemMap(address, 60 * MIB, 0, again, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(again), CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(driver_used_bytes(0), 60 * MIB);
	CHECK_IS(cuMemUnmap(address, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(driver_used_bytes(0), 0);
}

/* A process of the same step that has made memory, which lives until it is told to end. */
struct owner {
	pid_t pid;
	int end; /* is closed to tell it */
	CUipcMemHandle handle;
	int descriptor; /* in that process */
};

static void own_until(int ready, int end)
{
	struct owner own = {.pid = getpid()};
	CUmemGenericAllocationHandle memory;
	CUdeviceptr a;
	char nothing;

	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuIpcGetMemHandle(&own.handle, a), CUDA_SUCCESS);
	CHECK_IS(cuMemCreate(&memory, 30 * MIB, &shareable, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemExportToShareableHandle(&own.descriptor, memory,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	CHECK(write(ready, &own, sizeof(own)) == sizeof(own));
	CHECK_IS(read(end, &nothing, 1), 0);
	_exit(failures);
}

static struct owner owner_start(void)
{
	struct owner own = {0};
	int ready[2], end[2];
	pid_t pid;

	CHECK_IS(pipe(ready), 0);
	CHECK_IS(pipe(end), 0);
	pid = fork();
	if (pid == 0) {
		close(end[1]);
		own_until(ready[1], end[0]);
	}
	close(ready[1]);
	close(end[0]);
	CHECK(read(ready[0], &own, sizeof(own)) == sizeof(own));
	own.end = end[1];
	return own;
}

/* What was the owner's is looked for when something is allocated, and no more often than every 100 ms. */
static bool is_refused_in_time(uint64_t bytes)
{
	const struct timespec pause = {0, 10000000};
	CUdeviceptr a;

	for (int i = 0; i < 500; i++) {
		if (cuMemAlloc_v2(&a, bytes) == CUDA_ERROR_OUT_OF_MEMORY)
			return true;
		CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
		nanosleep(&pause, NULL);
	}
	return false;
}

/* Opens mib MiB of an owner, lets it end, and closes them. */
static void outlive(uint64_t mib, CUresult (*open_it)(const struct owner *), CUresult (*close_it)(void))
{
	struct owner own;
	CUdeviceptr a;
	int status = -1;

	gpus(0);
	step = step_make(100 + (uint32_t)getpid(), 0, 100, 100);
	own = owner_start();
	cuda_begin(0);
	CHECK_IS(open_it(&own), CUDA_SUCCESS);
	CHECK_IS(used(), 90 * MIB);
	close(own.end);
	CHECK_IS(waitpid(own.pid, &status, 0), own.pid);
	CHECK_IS(status, 0);
	CHECK(is_refused_in_time((102 - mib) * MIB));
	CHECK_IS(cuMemAlloc_v2(&a, (100 - mib) * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(used(), mib * MIB);
	CHECK_IS(driver_used_bytes(0), mib * MIB);
	CHECK_IS(close_it(), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK(close_it() != CUDA_SUCCESS);
}

static CUdeviceptr opened;
static CUmemGenericAllocationHandle imported;

static CUresult open_ipc(const struct owner *own)
{
	return cuIpcOpenMemHandle(&opened, own->handle, 1);
}

static CUresult open_ipc_v2(const struct owner *own)
{
	return cuIpcOpenMemHandle_v2(&opened, own->handle, 1);
}

static CUresult close_ipc(void)
{
	return cuIpcCloseMemHandle(opened);
}

static CUresult open_descriptor(const struct owner *own)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)own->pid, own->descriptor);
	return cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)open(path, O_RDONLY),
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static CUresult close_descriptor(void)
{
	return cuMemRelease(imported);
}

static void what_an_owner_leaves_open_by_ipc_is_charged_to_the_opener(void)
{
	outlive(60, open_ipc, close_ipc);
}

static void what_an_owner_leaves_open_by_ipc_v2_is_charged_to_the_opener(void)
{
	outlive(60, open_ipc_v2, close_ipc);
}

static void what_an_owner_leaves_imported_is_charged_to_the_importer(void)
{
	outlive(30, open_descriptor, close_descriptor);
}

static void exports_and_imports_that_fail_change_nothing(void)
{
	CUmemGenericAllocationHandle a;
	int fd = -1;

	begin(100);
	CHECK(cuMemExportToShareableHandle(&fd, 12345, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
	      CUDA_SUCCESS);
	CHECK_IS(cuMemCreate(&a, 60 * MIB, &shareable, 0), CUDA_SUCCESS);
	CHECK(cuMemExportToShareableHandle(NULL, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
	      CUDA_SUCCESS);
	CHECK(cuMemExportToShareableHandle(&fd, a, 8, 0) != CUDA_SUCCESS);
	CHECK(cuMemImportFromShareableHandle(&a, (void *)-1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
	      CUDA_SUCCESS);
	CHECK(cuMemImportFromShareableHandle(NULL, NULL, 1) != CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "open") == 0)
		return open_handle();
	if (argc > 1 && strcmp(argv[1], "import") == 0)
		return import();
	gpus(0);
	CASE(opened_memory_is_charged_to_its_owner_only);
	CASE(memory_of_another_job_costs_that_job);
	CASE(an_import_costs_nothing_and_frees_nothing);
	CASE(what_a_process_imports_from_itself_stays_charged);
	CASE(a_duplicate_of_a_descriptor_is_the_same_memory);
	CASE(what_an_owner_leaves_open_by_ipc_is_charged_to_the_opener);
	CASE(what_an_owner_leaves_open_by_ipc_v2_is_charged_to_the_opener);
	CASE(what_an_owner_leaves_imported_is_charged_to_the_importer);
	CASE(exports_and_imports_that_fail_change_nothing);
	return summary();
}
