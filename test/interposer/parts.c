/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Small parts of the library, each by itself. */
#include "harness.h"

#include "api/symbols.h"
#include "base/table.h"
#include "base/thread.h"
#include "driver/device.h"
#include "driver/report.h"
#include "gate/copies.h"
#include "memory/array.h"

#include <sys/mman.h>

struct vgpu_pages vgpu_pages;
void *vgpu_real[VGPU_SYMBOLS];
static struct vgpu_limits limits;
static struct vgpu_process process;
static bool no_memory;

/* The linker leads the table's calls here (--wrap). */
void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return no_memory ? MAP_FAILED : __real_mmap(address, length, protection, flags, fd, offset);
}

/* ---- tables ---- */

static struct vgpu_entry entry_of(uint64_t i)
{
	return (struct vgpu_entry){.key = i * 0x200000, .owner = i, .bytes = 7 * i, .count = 1};
}

static void holds(const struct vgpu_table *table, uint64_t from, uint64_t to)
{
	CHECK_IS(table->used, to - from);
	for (uint64_t i = from; i < to; i++) {
		const struct vgpu_entry *found = vgpu_table_find(table, entry_of(i).key);

		CHECK(found != NULL && found->owner == i && found->bytes == 7 * i);
	}
	CHECK(vgpu_table_find(table, entry_of(to).key) == NULL);
}

static void a_table_grows_with_what_it_holds(void)
{
	struct vgpu_table table = {0};
	struct vgpu_entry out;

	CHECK(vgpu_table_find(&table, 1) == NULL);
	CHECK(!vgpu_table_take(&table, 1, &out));
	CHECK(!vgpu_table_put(&table, &(struct vgpu_entry){0}));
	for (uint64_t i = 1; i < 5000; i++) {
		CHECK(vgpu_table_put(&table, &(struct vgpu_entry){.key = entry_of(i).key}));
		CHECK(vgpu_table_put(&table, &(struct vgpu_entry){.key = entry_of(i).key, .owner = i, .bytes = 7 * i}));
		CHECK(table.used * 4 <= table.capacity * 3);
		/* Not before it has to. */
		CHECK(table.capacity == 128 || table.used * 8 > table.capacity * 3);
	}
	CHECK(table.capacity <= 8192);
	holds(&table, 1, 5000);
	for (uint64_t i = 1; i < 4000; i++) {
		CHECK(vgpu_table_take(&table, entry_of(i).key, &out));
		CHECK_IS(out.owner, i);
		CHECK(!vgpu_table_take(&table, entry_of(i).key, &out));
	}
	holds(&table, 4000, 5000);
}

/* One place stays empty, so that a search ends. */
static void a_table_that_cannot_grow_takes_what_it_has_room_for(void)
{
	struct vgpu_table table = {0};
	struct vgpu_entry first = entry_of(1);
	uint64_t capacity;

	no_memory = true;
	CHECK(!vgpu_table_put(&table, &first));
	CHECK_IS(table.used, 0);
	no_memory = false;
	CHECK(vgpu_table_put(&table, &first));
	no_memory = true;
	capacity = table.capacity;
	for (uint64_t i = 2; i < capacity; i++) {
		struct vgpu_entry entry = entry_of(i);

		CHECK(vgpu_table_put(&table, &entry));
	}
	first = entry_of(capacity);
	CHECK(!vgpu_table_put(&table, &first));
	CHECK_IS(table.capacity, capacity);
	if (failures != 0)
		return;
	holds(&table, 1, capacity);
	no_memory = false;
	CHECK(vgpu_table_put(&table, &first));
	holds(&table, 1, capacity + 1);
}

/* ---- copies ---- */

/* Addresses below this are the host's, and all others the device's. */
#define DEVICE_FROM 0x1000000u

static CUresult attribute(void *data, int which, CUdeviceptr pointer)
{
	if (which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
		*(unsigned int *)data = pointer < DEVICE_FROM ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	return CUDA_SUCCESS;
}

static nvmlReturn_t init(void)
{
	return NVML_SUCCESS;
}

static nvmlReturn_t handle_by_uuid(const char *uuid, nvmlDevice_t *device)
{
	*device = strcmp(uuid, UUID0) == 0 ? (nvmlDevice_t)(uintptr_t)7 : NULL;
	return *device != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static nvmlProcessInfo_v2_t running[4];
static unsigned int running_count;
static nvmlReturn_t list_result;

static nvmlReturn_t list_running(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)
{
	CHECK_IS((uintptr_t)device, 7);
	CHECK(*count >= running_count);
	if (list_result == NVML_SUCCESS)
		memcpy(infos, running, running_count * sizeof(*infos));
	*count = running_count;
	return list_result;
}

void *vgpu_real_look_up(enum vgpu_symbol symbol)
{
	switch (symbol) {
	case VGPU_SYMBOL_cuPointerGetAttribute:
		return (void *)attribute;
	case VGPU_SYMBOL_nvmlInit_v2:
		return (void *)init;
	case VGPU_SYMBOL_nvmlDeviceGetHandleByUUID:
		return (void *)handle_by_uuid;
	case VGPU_SYMBOL_nvmlDeviceGetComputeRunningProcesses_v3:
		return (void *)list_running;
	default:
		return NULL;
	}
}

bool vgpu_real_load_nvml(void)
{
	return true;
}

bool vgpu_thread_start(void *(*run)(void *), void *argument)
{
	(void)run, (void)argument;
	return false;
}

struct vgpu_process *vgpu_this_process;
struct vgpu_process *vgpu_attach_slowly(void)
{
	return &process;
}

bool vgpu_device_ask_several(struct vgpu_process *p)
{
	(void)p;
	return false;
}

uint64_t vgpu_array_element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	return shape->NumChannels;
}

static struct vgpu_copied list(size_t count, size_t each, CUdeviceptr from)
{
	CUdeviceptr to[8], source[8];
	size_t bytes[8];

	for (size_t i = 0; i < count; i++) {
		to[i] = DEVICE_FROM + i * 64 * MIB;
		source[i] = from;
		bytes[i] = each;
	}
	return vgpu_copied_list(&process, to, source, bytes, count);
}

static void a_list_of_copies_takes_as_long_as_they_do_on_average(void)
{
	struct vgpu_copied one = list(1, 8 * MIB, DEVICE_FROM), four = list(4, 8 * MIB, DEVICE_FROM);

	CHECK_IS(one.count, 1);
	CHECK_IS(one.bytes, 8 * MIB);
	CHECK_IS(one.shape, 0);
	CHECK_IS(four.count, 4);
	CHECK_IS(four.bytes, 32 * MIB);
	CHECK(four.shape != one.shape);
	CHECK_IS(four.shape, list(8, 8 * MIB, DEVICE_FROM).shape);
	CHECK(four.shape != list(8, 32 * MIB, DEVICE_FROM).shape);
}

static void a_short_list_and_one_of_the_host_take_none_of_the_gpu(void)
{
	struct vgpu_copied copied = list(3, 1000, DEVICE_FROM);

	CHECK_IS(copied.count, 0);
	CHECK_IS(copied.bytes, 0);
	copied = list(0, 0, DEVICE_FROM);
	CHECK_IS(copied.count, 0);
	copied = list(3, 8 * MIB, 4096);
	CHECK_IS(copied.count, 0);
	CHECK_IS(copied.bytes, 0);
	CHECK_IS(copied.beside_bytes, 24 * MIB);
	copied = vgpu_copied_list(&process, NULL, NULL, NULL, 3);
	CHECK_IS(copied.count, 0);
}

/* ---- what NVML reports ---- */

static void what_nvml_reports_of_this_process_is_added_up(void)
{
	uint64_t bytes = 5;

	strcpy(limits.device[0].uuid, UUID0);
	process.pid = 42;
	running_count = 4;
	running[0] = (nvmlProcessInfo_v2_t){.pid = 42, .usedGpuMemory = 3 * MIB};
	running[1] = (nvmlProcessInfo_v2_t){.pid = 43, .usedGpuMemory = 100 * MIB};
	running[2] = (nvmlProcessInfo_v2_t){.pid = 42, .usedGpuMemory = NVML_VALUE_NOT_AVAILABLE};
	running[3] = (nvmlProcessInfo_v2_t){.pid = 42, .usedGpuMemory = 4 * MIB};
	CHECK(vgpu_report_bytes(&process, 0, &bytes));
	CHECK_IS(bytes, 7 * MIB);
	list_result = NVML_ERROR_UNKNOWN;
	CHECK(!vgpu_report_bytes(&process, 0, &bytes));
	CHECK_IS(bytes, 0);
	list_result = NVML_SUCCESS;
	running_count = 2;
	running[0].pid = 41;
	CHECK(!vgpu_report_bytes(&process, 0, &bytes));
	CHECK(!vgpu_report_bytes(&process, 1, &bytes));
}

static void without_memory_for_the_list_nothing_is_reported(void)
{
	uint64_t bytes = 5;

	strcpy(limits.device[0].uuid, UUID0);
	process.pid = 42;
	running_count = 1;
	running[0] = (nvmlProcessInfo_v2_t){.pid = 42, .usedGpuMemory = 3 * MIB};
	no_memory = true;
	CHECK(!vgpu_report_bytes(&process, 0, &bytes));
	CHECK_IS(bytes, 0);
	no_memory = false;
	CHECK(vgpu_report_bytes(&process, 0, &bytes));
	CHECK_IS(bytes, 3 * MIB);
}

int main(void)
{
	vgpu_pages.limits = &limits;
	gpus(0);
	CASE(a_table_grows_with_what_it_holds);
	CASE(a_table_that_cannot_grow_takes_what_it_has_room_for);
	CASE(a_list_of_copies_takes_as_long_as_they_do_on_average);
	CASE(a_short_list_and_one_of_the_host_take_none_of_the_gpu);
	CASE(what_nvml_reports_of_this_process_is_added_up);
	CASE(without_memory_for_the_list_nothing_is_reported);
	return summary();
}
