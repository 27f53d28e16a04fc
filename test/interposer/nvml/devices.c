/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which GPUs NVML shows and in which order, where the driver would show all of the node. */
#include "harness.h"

#include <pthread.h>
#include <sys/wait.h>

static struct step step;

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length);

/* The process is granted so many GPUs, in this order. */
static void grant(unsigned count, const char *first, const char *second)
{
	gpus(0);
	step = step_make(90, 0, 100, 100);
	step.limits->device[1] = step.limits->device[0];
	strcpy(step.limits->device[0].uuid, first);
	strcpy(step.limits->device[1].uuid, second);
	step.limits->device_count = count;
	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
}

static bool is_uuid(nvmlDevice_t device, const char *want)
{
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";

	return nvmlDeviceGetUUID(device, uuid, sizeof(uuid)) == NVML_SUCCESS && strcmp(uuid, want) == 0;
}

static void only_granted_gpus_are_counted_and_found(void)
{
	nvmlUUID_v1_t key = {.version = NVML_STRUCT_V1(key), .type = NVML_UUID_TYPE_ASCII};
	nvmlDevice_t untouched = (nvmlDevice_t)0x77, device = untouched, set[4];
	unsigned int count = 9, index = 9;
	char serial[40];

	grant(1, UUID1, "");
	CHECK_IS(nvmlDeviceGetCount(&count), NVML_SUCCESS);
	CHECK_IS(count, 1);
	CHECK_IS(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
	CHECK_IS(count, 1);
	CHECK_IS(nvmlDeviceGetCount_v2(NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_IS(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, NULL), NVML_ERROR_INVALID_ARGUMENT);
	/* The other GPU by every other key, as one that is not there. */
	CHECK_IS(nvmlDeviceGetHandleByUUID(UUID0, &device), NVML_ERROR_NOT_FOUND);
	strcpy(key.value.str, UUID0);
	CHECK_IS(nvmlDeviceGetHandleByUUIDV(&key, &device), NVML_ERROR_NOT_FOUND);
	CHECK_IS(nvmlDeviceGetHandleByPciBusId("0000:10:00.0", &device), NVML_ERROR_NOT_FOUND);
	CHECK_IS(nvmlDeviceGetHandleByPciBusId_v2("0000:10:00.0", &device), NVML_ERROR_NOT_FOUND);
	CHECK(device == untouched);
	CHECK_IS(nvmlDeviceGetHandleByPciBusId_v2("junk", &device), NVML_ERROR_INVALID_ARGUMENT);
	/* And its own. */
	CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
	CHECK(is_uuid(device, UUID1));
	CHECK_IS(nvmlDeviceGetIndex(device, &index), NVML_SUCCESS);
	CHECK_IS(index, 0);
	CHECK_IS(nvmlDeviceGetSerial(device, serial, sizeof(serial)), NVML_SUCCESS);
	for (int way = 0; way < 4; way++) {
		nvmlDevice_t same = NULL;

		strcpy(key.value.str, UUID1);
		CHECK_IS(way == 0   ? nvmlDeviceGetHandleByPciBusId_v2("0000:1F:00.0", &same)
			 : way == 1 ? nvmlDeviceGetHandleByUUIDV(&key, &same)
			 : way == 2 ? nvmlDeviceGetHandleBySerial(serial, &same)
				    : nvmlDeviceGetHandleByIndex(0, &same),
			 NVML_SUCCESS);
		CHECK(same == device);
	}
	CHECK_IS(nvmlDeviceGetIndex(device, NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_IS(nvmlDeviceGetIndex(NULL, &index), NVML_ERROR_INVALID_ARGUMENT);
	/* Nor is the other one found through the topology. */
	count = 0;
	CHECK_IS(nvmlSystemGetTopologyGpuSet(0, &count, NULL), NVML_SUCCESS);
	CHECK_IS(count, 1);
	count = 4;
	CHECK_IS(nvmlSystemGetTopologyGpuSet(0, &count, set), NVML_SUCCESS);
	CHECK_IS(count, 1);
	CHECK(set[0] == device);
	count = 4;
	CHECK_IS(nvmlDeviceGetTopologyNearestGpus(device, 30, &count, set), NVML_SUCCESS);
	CHECK_IS(count, 0);
	CHECK_IS(nvmlSystemGetTopologyGpuSet(0, NULL, set), NVML_ERROR_INVALID_ARGUMENT);
}

static void indices_are_those_of_the_limits_page_and_of_cuda(void)
{
	grant(2, UUID1, UUID0);
	setenv("CUDA_VISIBLE_DEVICES", UUID1 "," UUID0, 1);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	for (unsigned int i = 0; i < 2; i++) {
		nvmlDevice_t device = NULL;
		unsigned int index = 9;
		nvmlMemory_t memory;
		char text[40];
		CUuuid uuid;

		CHECK_IS(nvmlDeviceGetHandleByIndex_v2(i, &device), NVML_SUCCESS);
		CHECK(is_uuid(device, i == 0 ? UUID1 : UUID0));
		CHECK_IS(nvmlDeviceGetIndex(device, &index), NVML_SUCCESS);
		CHECK_IS(index, i);
		CHECK_IS(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
		CHECK_IS(memory.total, 100 * MIB);
		CHECK_IS(cuDeviceGetUuid(&uuid, (CUdevice)i), CUDA_SUCCESS);
		snprintf(text, sizeof(text), "%x", (unsigned char)uuid.bytes[15]);
		CHECK(strcmp(text, i == 0 ? "b" : "a") == 0);
	}
}

CUresult cuDeviceGetCount(int *count);

/* The last digits of the UUIDs that CUDA shows, in order, where the variable says this (NULL: it is not
 * set). */
static const char *shown(const char *value)
{
	static char text[VGPU_MAX_DEVICES + 1];
	CUresult result;
	int count = 0;

	if (value == NULL)
		unsetenv("CUDA_VISIBLE_DEVICES");
	else
		setenv("CUDA_VISIBLE_DEVICES", value, 1);
	memset(text, 0, sizeof(text));
	result = cuInit(0);
	if (result == CUDA_ERROR_NO_DEVICE)
		return "none";
	CHECK_IS(result, CUDA_SUCCESS);
	CHECK_IS(cuDeviceGetCount(&count), CUDA_SUCCESS);
	for (int i = 0; i < count; i++) {
		CUuuid uuid;

		CHECK_IS(cuDeviceGetUuid(&uuid, i), CUDA_SUCCESS);
		text[i] = (unsigned char)uuid.bytes[15] == 10 ? 'a' : 'b';
	}
	return text;
}

/* Here and for programs that are started from here. */
static bool is_set_to(const char *value)
{
	const char *here = getenv("CUDA_VISIBLE_DEVICES");
	int entries = 0;

	for (char **at = environ; *at != NULL; at++)
		entries += strncmp(*at, "CUDA_VISIBLE_DEVICES=", 21) == 0;
	setenv("WANT", value == NULL ? "unset" : value, 1);
	return entries == (value != NULL) && (value == NULL ? here == NULL : strcmp(here, value) == 0) &&
	       system("test \"${CUDA_VISIBLE_DEVICES-unset}\" = \"$WANT\"") == 0;
}

static const char *wish, *want;
static unsigned granted_count;

static void one_wish(void)
{
	const char *got;

	grant(granted_count, UUID1, UUID0);
	got = shown(wish);
	if (strcmp(got, want) != 0)
		fprintf(stderr, "%s of %u GPUs: %s, not %s\n", wish == NULL ? "nothing" : wish, granted_count,
			got, want);
	CHECK(strcmp(got, want) == 0);
	CHECK(is_set_to(wish));
}

/* The driver would show both GPUs of the node, as under preload isolation, the one with "a" first. */
static void a_number_counts_the_gpus_of_the_step(void)
{
	static const struct {
		unsigned granted;
		const char *wish, *want;
	} rows[] = {
		{1, "0", "b"}, {1, NULL, "b"}, {1, "1", "none"}, {1, "0,1", "b"}, {1, "", "none"}, {1, "-1", "none"},
		{1, UUID1, "b"}, {1, UUID0, "none"}, {1, UUID1 "," UUID0, "b"}, {1, "GPU-", "b"}, {1, "0," UUID1, "b"},
		{2, "0", "b"}, {2, "1", "a"}, {2, "1,0", "ab"}, {2, "0,1", "ba"}, {2, NULL, "ba"}, {2, "0,0", "none"},
		{2, UUID0, "a"}, {2, UUID0 "," UUID1, "ab"}, {2, "GPU-", "none"}, {2, "1,7,0", "a"}, {2, "junk", "none"},
		{2, " 1", "a"}, {2, "+1", "a"}, {2, "1x,0", "ab"}, {2, "- 1", "none"}, {2, "99999999999999999999,0", "none"},
		{2, "18446744073709551617", "none"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int before = failures;
		pid_t pid;
		int status;

		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			failures = before;
			granted_count = rows[i].granted;
			wish = rows[i].wish;
			want = rows[i].want;
			one_wish();
			_exit(failures != before);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
}

static pthread_barrier_t all_there;

static void *start(void *nothing)
{
	(void)nothing;
	pthread_barrier_wait(&all_there);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	return NULL;
}

/* Whoever of them was the first, and the last. */
static void threads_that_start_together_leave_the_wish_as_it_is(void)
{
	pthread_t thread[8];

	grant(2, UUID1, UUID0);
	setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	pthread_barrier_init(&all_there, NULL, 8);
	for (int i = 0; i < 8; i++)
		CHECK_IS(pthread_create(&thread[i], NULL, start, NULL), 0);
	for (int i = 0; i < 8; i++)
		CHECK_IS(pthread_join(thread[i], NULL), 0);
	CHECK(is_set_to("1,0"));
	CHECK(strcmp(shown("1,0"), "ab") == 0);
}

static void what_a_numbered_gpu_is_asked_for_is_charged_to_its_slice(void)
{
	CUdeviceptr pointer;

	grant(2, UUID1, UUID0);
	step.limits->device[1].step_mem_bytes = step.limits->device[1].job_mem_bytes = 50 * MIB;
	CHECK(strcmp(shown("1"), "a") == 0);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&pointer, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAlloc_v2(&pointer, 40 * MIB), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 0);
	CHECK_IS(step.ledger->used_bytes[1], 40 * MIB);
	CHECK_IS(step.ledger->refusals[1], 1);
}

static void a_slice_that_is_not_the_steps_is_not_shown(void)
{
	nvmlDevice_t device = NULL;
	unsigned int count = 9;

	grant(2, UUID1, UUID0);
	step.limits->device[0].step_mem_bytes = 0;
	CHECK_IS(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
	CHECK_IS(count, 1);
	CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
	CHECK(is_uuid(device, UUID0));
	CHECK_IS(nvmlDeviceGetIndex(device, &count), NVML_SUCCESS);
	CHECK_IS(count, 0);
	CHECK_IS(nvmlDeviceGetHandleByUUID(UUID1, &device), NVML_ERROR_NOT_FOUND);
	CHECK(strcmp(shown("0"), "a") == 0);
}

static void before_init_and_for_a_gpu_that_is_gone_the_driver_speaks(void)
{
	nvmlDevice_t device;
	unsigned int count = 9;

	gpus(0);
	step = step_make(91, 0, 100, 100);
	step.limits->device[1] = step.limits->device[0];
	strcpy(step.limits->device[0].uuid, "GPU-00000000-1111-2222-3333-00000000000c");
	step.limits->device_count = 2;
	CHECK_IS(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
	CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_UNINITIALIZED);
	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_IS(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
	CHECK_IS(count, 1);
	CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
	CHECK(is_uuid(device, UUID0));
}

static void a_lost_gpu_counts_and_has_no_handle(void)
{
	nvmlDevice_t device = NULL;
	unsigned int count = 9;
	char path[600];
	FILE *conf;

	gpus(0);
	snprintf(path, sizeof(path), "%s/simgpu.conf", getenv("SIMGPU_DIR"));
	conf = fopen(path, "a");
	CHECK(conf != NULL && fprintf(conf, "device0.lost=1\n") > 0 && fclose(conf) == 0);
	step = step_make(92, 0, 100, 100);
	step.limits->device[1] = step.limits->device[0];
	strcpy(step.limits->device[1].uuid, UUID1);
	step.limits->device_count = 2;
	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_IS(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
	CHECK_IS(count, 2);
	CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_GPU_IS_LOST);
	CHECK(device == NULL);
	CHECK_IS(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_SUCCESS);
	CHECK(is_uuid(device, UUID1));
	CHECK_IS(nvmlDeviceGetIndex(device, &count), NVML_SUCCESS);
	CHECK_IS(count, 1);
}

/* The first NVML call of a process without limits, and with none that can be believed. */
static void without_limits_nvml_is_not_permitted(void)
{
	nvmlDevice_t device = NULL;
	unsigned int count = 9;

	gpus(0);
	setenv(VGPU_STEP_DIR_ENV, "/nowhere/jobs/1/steps/0", 1);
	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_IS(nvmlDeviceGetCount_v2(&count), NVML_ERROR_NO_PERMISSION);
	CHECK_IS(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_NO_PERMISSION);
	CHECK_IS(nvmlDeviceGetHandleByUUID(UUID0, &device), NVML_ERROR_NO_PERMISSION);
	CHECK(device == NULL);
}

int main(void)
{
	gpus(0);
	CASE(only_granted_gpus_are_counted_and_found);
	CASE(indices_are_those_of_the_limits_page_and_of_cuda);
	CASE(a_number_counts_the_gpus_of_the_step);
	CASE(threads_that_start_together_leave_the_wish_as_it_is);
	CASE(what_a_numbered_gpu_is_asked_for_is_charged_to_its_slice);
	CASE(a_slice_that_is_not_the_steps_is_not_shown);
	CASE(before_init_and_for_a_gpu_that_is_gone_the_driver_speaks);
	CASE(a_lost_gpu_counts_and_has_no_handle);
	CASE(without_limits_nvml_is_not_permitted);
	return summary();
}
