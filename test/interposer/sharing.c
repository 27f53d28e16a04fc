/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that several processes use is charged once, to the process that made it. */
#include "harness.h"

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer);
CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr pointer);

static struct step step;

static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static uint64_t used(void)
{
	CHECK_IS(step_slots_bytes(&step), step.ledger->used_bytes[0]);
	return step.ledger->used_bytes[0];
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
	CHECK_IS(cuMemImportFromShareableHandle(&handle, (void *)77, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), CUDA_SUCCESS);
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
	CHECK_IS(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
	CHECK_IS(dup2(fd, 77), 77);
	CHECK_IS(run_self("import"), 0);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(cuMemRelease(a), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void a_duplicate_of_a_descriptor_is_the_same_memory(void)
{
	CUmemGenericAllocationHandle a, again;
	int fd;

	begin(100);
	CHECK_IS(cuMemCreate(&a, 60 * MIB, &shareable, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)dup(fd), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		 CUDA_SUCCESS);
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
	CHECK_IS(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		 CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
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

static void exports_and_imports_that_fail_change_nothing(void)
{
	CUmemGenericAllocationHandle a;
	int fd = -1;

	begin(100);
	CHECK(cuMemExportToShareableHandle(&fd, 12345, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS);
	CHECK_IS(cuMemCreate(&a, 60 * MIB, &shareable, 0), CUDA_SUCCESS);
	CHECK(cuMemExportToShareableHandle(NULL, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS);
	CHECK(cuMemExportToShareableHandle(&fd, a, 8, 0) != CUDA_SUCCESS);
	CHECK(cuMemImportFromShareableHandle(&a, (void *)-1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS);
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
	CASE(exports_and_imports_that_fail_change_nothing);
	return summary();
}
