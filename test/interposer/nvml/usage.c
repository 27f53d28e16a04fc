/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * NVML and nvidia-smi in a job beside another job's: whose processes, whose utilisation. */
#include "neighbours.h"

#include <dlfcn.h>

static void bar1_tells_nothing_of_the_neighbour(void)
{
	nvmlBAR1Memory_t bar1;
	nvmlMemory_t protected = {1, 1, 1};

	two_jobs("0", "0");
	CHECK_IS(nvmlDeviceGetBAR1MemoryInfo(gpu0(), &bar1), NVML_SUCCESS);
	CHECK_IS(bar1.bar1Total, 100 * MIB);
	CHECK_IS(bar1.bar1Used, 20 * MIB);
	CHECK_IS(bar1.bar1Free, 80 * MIB);
	CHECK_IS(nvmlDeviceGetBAR1MemoryInfo(gpu0(), NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_IS(nvmlDeviceGetConfComputeProtectedMemoryUsage(gpu0(), &protected), NVML_SUCCESS);
	CHECK_IS(protected.total, 0);
	CHECK_IS(protected.used, 0);
	end_jobs();
}

static void details_accounting_and_names_are_of_own_processes(void)
{
	nvmlProcessDetail_v1_t detail[4];
	nvmlProcessDetailList_v1_t details = {.version = NVML_STRUCT_V1(details)};
	nvmlAccountingStats_v2_t stats_v2 = {0};
	nvmlAccountingStats_t stats;
	unsigned int count = 0, pid[4];
	char name[100];

	two_jobs("0", "0");
	CHECK_IS(nvmlDeviceGetRunningProcessDetailList(gpu0(), &details), NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_IS(details.numProcArrayEntries, 1);
	details.procArray = detail;
	details.numProcArrayEntries = 4;
	CHECK_IS(nvmlDeviceGetRunningProcessDetailList(gpu0(), &details), NVML_SUCCESS);
	CHECK_IS(details.numProcArrayEntries, 1);
	CHECK_IS(detail[0].pid, ours);
	CHECK_IS(detail[0].usedGpuMemory, 20 * MIB);
	details.version = 7;
	CHECK_IS(nvmlDeviceGetRunningProcessDetailList(gpu0(), &details),
		 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	CHECK_IS(nvmlDeviceGetRunningProcessDetailList(gpu0(), NULL), NVML_ERROR_INVALID_ARGUMENT);

	CHECK_IS(nvmlDeviceGetAccountingPids(gpu0(), &count, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_IS(count, 1);
	count = 4;
	CHECK_IS(nvmlDeviceGetAccountingPids(gpu0(), &count, pid), NVML_SUCCESS);
	CHECK_IS(count, 1);
	CHECK_IS(pid[0], ours);
	CHECK_IS(nvmlDeviceGetAccountingStats(gpu0(), (unsigned)ours, &stats), NVML_SUCCESS);
	CHECK_IS(stats.maxMemoryUsage, 20 * MIB);
	CHECK_IS(nvmlDeviceGetAccountingStats(gpu0(), (unsigned)theirs, &stats), NVML_ERROR_NOT_FOUND);
	CHECK_IS(nvmlDeviceGetAccountingStats(gpu0(), (unsigned)ours, NULL), NVML_ERROR_INVALID_ARGUMENT);
	stats_v2.pid = (unsigned)theirs;
	CHECK_IS(nvmlDeviceGetAccountingStats_v2(gpu0(), &stats_v2), NVML_ERROR_NOT_FOUND);
	stats_v2.pid = (unsigned)ours;
	CHECK_IS(nvmlDeviceGetAccountingStats_v2(gpu0(), &stats_v2), NVML_SUCCESS);

	CHECK_IS(nvmlSystemGetProcessName((unsigned)ours, name, sizeof(name)), NVML_SUCCESS);
	CHECK(strstr(name, "worker") != NULL);
	CHECK_IS(nvmlSystemGetProcessName((unsigned)getpid(), name, sizeof(name)), NVML_SUCCESS);
	CHECK_IS(nvmlSystemGetProcessName((unsigned)theirs, name, sizeof(name)), NVML_ERROR_NOT_FOUND);
	CHECK_IS(nvmlSystemGetProcessName((unsigned)ours, NULL, 0), NVML_ERROR_INVALID_ARGUMENT);
	end_jobs();
}

static void utilisation_is_that_of_own_processes(void)
{
	nvmlProcessUtilizationInfo_v1_t info[80];
	nvmlProcessesUtilizationInfo_v1_t usage = {.version = NVML_STRUCT_V1(usage)};
	nvmlProcessUtilizationSample_t sample[80];
	nvmlReturn_t result = NVML_ERROR_NOT_FOUND;
	nvmlUtilization_t rates = {0};
	nvmlSample_t series[80];
	nvmlDevice_t device;
	unsigned int count = 0, period_us = 0;
	int type;

	two_jobs("20", "60");
	device = gpu0();
	CHECK(both_sampled(device));
	CHECK_IS(nvmlDeviceGetUtilizationRates(device, &rates), NVML_SUCCESS);
	CHECK_WITHIN(rates.gpu, 1, 40);
	CHECK_IS(nvmlDeviceGetUtilizationRates(device, NULL), NVML_ERROR_INVALID_ARGUMENT);
#define CHECK_ENGINE(function, device)                                                               \
	do {                                                                                 \
		CHECK_IS(function(device, &count, &period_us), NVML_SUCCESS);                \
		CHECK(count >= 1 && count <= 40 && period_us > 0);                           \
		CHECK_IS(function(device, NULL, &period_us), NVML_ERROR_INVALID_ARGUMENT);   \
	} while (0)
	CHECK_ENGINE(nvmlDeviceGetEncoderUtilization, device);
	CHECK_ENGINE(nvmlDeviceGetDecoderUtilization, device);
	CHECK_ENGINE(nvmlDeviceGetJpgUtilization, device);
	CHECK_ENGINE(nvmlDeviceGetOfaUtilization, device);

	CHECK_IS(nvmlDeviceGetProcessUtilization(device, NULL, &count, 0), NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK(count > 0 && count <= 80);
	/* The driver books each of its samples on one process: the first ones may all be the neighbour's. */
	for (int tries = 0; tries < 400 && result == NVML_ERROR_NOT_FOUND; tries++) {
		count = 80;
		result = nvmlDeviceGetProcessUtilization(device, sample, &count, 0);
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	}
	CHECK_IS(result, NVML_SUCCESS);
	CHECK(count > 0);
	for (unsigned int i = 0; i < count; i++)
		CHECK_IS(sample[i].pid, ours);
	CHECK_IS(nvmlDeviceGetProcessUtilization(device, sample, NULL, 0), NVML_ERROR_INVALID_ARGUMENT);
	count = 80;
	CHECK_IS(nvmlDeviceGetProcessUtilization(device, sample, &count, ~0ull / 2), NVML_ERROR_NOT_FOUND);

	CHECK_IS(nvmlDeviceGetProcessesUtilizationInfo(device, &usage), NVML_ERROR_INSUFFICIENT_SIZE);
	usage.procUtilArray = info;
	usage.processSamplesCount = 80;
	CHECK_IS(nvmlDeviceGetProcessesUtilizationInfo(device, &usage), NVML_SUCCESS);
	CHECK_IS(usage.processSamplesCount, 1);
	CHECK_IS(info[0].pid, ours);
	usage.version = 7;
	CHECK_IS(nvmlDeviceGetProcessesUtilizationInfo(device, &usage), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	CHECK_IS(nvmlDeviceGetProcessesUtilizationInfo(device, NULL), NVML_ERROR_INVALID_ARGUMENT);

	count = 80;
	CHECK_IS(nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, NULL),
		 NVML_SUCCESS);
	count = 80;
	CHECK_IS(nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, series),
		 NVML_SUCCESS);
	CHECK(count > 0);
	for (unsigned int i = 0; i < count; i++)
		CHECK(series[i].sampleValue.uiVal <= 40);
	CHECK_IS(nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, 0, NULL, &count, series),
		 NVML_ERROR_INVALID_ARGUMENT);
	/* The neighbour alone: the slice is idle, and nobody in it has used the GPU. */
	kill(ours, SIGKILL);
	waitpid(ours, NULL, 0);
	count = 80;
	CHECK_IS(nvmlDeviceGetProcessUtilization(device, sample, &count, 0), NVML_ERROR_NOT_FOUND);
	CHECK_IS(count, 80);
	CHECK_IS(nvmlDeviceGetUtilizationRates(device, &rates), NVML_SUCCESS);
	CHECK_IS(rates.gpu, 0);
	end_jobs();
}

static void without_numbers_by_process_the_drivers_stand(void)
{
	nvmlProcessUtilizationSample_t sample[80];
	nvmlUtilization_t rates = {0};
	nvmlSample_t series[80];
	unsigned int count = 80, most = 0;
	int type;

	gpus(0);
	add_to_conf("usage_by_process=0");
	two_jobs_here("0", "60");
	CHECK(both_sampled(gpu0()));
	CHECK_IS(nvmlDeviceGetUtilizationRates(gpu0(), &rates), NVML_SUCCESS);
	CHECK(rates.gpu >= 1);
	CHECK_IS(nvmlDeviceGetProcessUtilization(gpu0(), sample, &count, 0), NVML_ERROR_NOT_SUPPORTED);
	CHECK_IS(nvmlDeviceGetSamples(gpu0(), NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, series),
		 NVML_SUCCESS);
	for (unsigned int i = 0; i < count; i++)
		most = series[i].sampleValue.uiVal > most ? series[i].sampleValue.uiVal : most;
	CHECK(most >= 1);
	end_jobs();
}

static void single_samples_are_no_sum(void)
{
	nvmlProcessUtilizationSample_t sample[80];
	nvmlUtilization_t rates = {0};
	unsigned int count = 0;

	gpus(0);
	add_to_conf("usage_by_process=2");
	two_jobs_here("20", "0");
	/* So many that their sum is far above what the job had. */
	for (int tries = 0; tries < 400 && count < 8; tries++) {
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
		count = 80;
		if (nvmlDeviceGetProcessUtilization(gpu0(), sample, &count, 0) != NVML_SUCCESS)
			count = 0;
	}
	CHECK(count >= 8);
	CHECK_IS(nvmlDeviceGetUtilizationRates(gpu0(), &rates), NVML_SUCCESS);
	CHECK_WITHIN(rates.gpu, 1, 40);
	end_jobs();
}

static const char *smi(const char *arguments)
{
	static char out[8192];
	char command[600];
	size_t n = 0;
	FILE *pipe;

	snprintf(command, sizeof(command), "'%s/nvidia-smi' %s 2>&1", getenv("VGPU_TEST_SIM"), arguments);
	pipe = popen(command, "r");
	if (pipe != NULL) {
		n = fread(out, 1, sizeof(out) - 1, pipe);
		pclose(pipe);
	}
	out[n] = '\0';
	return out;
}

static bool names(const char *text, pid_t pid)
{
	char word[20];

	snprintf(word, sizeof(word), " %d", pid);
	return strstr(text, word) != NULL || strncmp(text, word + 1, strlen(word + 1)) == 0;
}

static void nvidia_smi_lists_no_other_tenant(void)
{
	static const char *const forms[] = {"", "pmon -c 1",
					    "--query-compute-apps=pid,used_memory --format=csv,noheader"};
	char line[80];

	/* Where the library is part of this program, as under a sanitizer, nvidia-smi runs without it. */
	if (getenv("LD_PRELOAD") == NULL || getenv("LD_PRELOAD")[0] == '\0')
		return;
	two_jobs("0", "0");
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		const char *text = smi(forms[i]);

		if (!names(text, ours) || names(text, theirs)) {
			fprintf(stderr, "nvidia-smi %s with %d and not %d:\n%s", forms[i], ours, theirs,
				text);
			CHECK(false);
		}
	}
	snprintf(line, sizeof(line), "%d, 20 MiB\n", ours);
	CHECK(strcmp(smi(forms[2]), line) == 0);
	CHECK(strcmp(smi("--query-gpu=index,count,uuid,memory.used,memory.total --format=csv,noheader"),
		     "0, 1, " UUID0 ", 20 MiB, 100 MiB\n") == 0);
	end_jobs();
}

/* Under a driver that the table was not seen in. */
static int other_driver(void)
{
	static const unsigned char known[16] = NVML_SMI_TABLE_UUID;
	const void *table = NULL;
	vgpu_smi_list *ask;
	Dl_info info;

	if (nvmlInit_v2() != NVML_SUCCESS || nvmlInternalGetExportTable(&table, known) != NVML_SUCCESS)
		return 1;
	memcpy(&ask, (void *const *)table + NVML_SMI_COMPUTE_LIST, sizeof(ask));
	return dladdr((void *)ask, &info) != 0 && strstr(info.dli_fname, "libnvidia-ml") != NULL ? 0 : 2;
}

static void a_private_table_that_is_not_known_is_the_drivers(void)
{
	static const unsigned char known[16] = NVML_SMI_TABLE_UUID;
	static const unsigned char other[16] = {1};
	struct vgpu_smi_process *list = calloc(4, sizeof(*list));
	const void *table = NULL, *again = NULL;
	unsigned int count = 4;
	vgpu_smi_list *ask;

	two_jobs("0", "0");
	CHECK_IS(nvmlInternalGetExportTable(&table, other), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_IS(nvmlInternalGetExportTable(NULL, known), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_IS(nvmlInternalGetExportTable(&table, NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK(table == NULL);
	CHECK_IS(nvmlInternalGetExportTable(&table, known), NVML_SUCCESS);
	CHECK_IS(nvmlInternalGetExportTable(&again, known), NVML_SUCCESS);
	CHECK(table == again);
	memcpy(&ask, (void *const *)table + NVML_SMI_COMPUTE_LIST, sizeof(ask));
	CHECK_IS(ask(gpu0(), &count, list), NVML_SUCCESS);
	CHECK_IS(count, 1);
	CHECK_IS(list[0].pid, ours);
	CHECK_IS(list[0].used_bytes, 20 * MIB);
	/* Nothing of the other is left behind the end. */
	CHECK_IS(list[1].pid, 0);
	CHECK_IS(list[1].name[0], 0);
	end_jobs();
	add_to_conf("driver=999.1");
	CHECK_IS(run_self("table"), 0);
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "work") == 0)
		return work(argv[2]);
	if (argc > 1 && strcmp(argv[1], "table") == 0)
		return other_driver();
	gpus(0);
	CASE(bar1_tells_nothing_of_the_neighbour);
	CASE(details_accounting_and_names_are_of_own_processes);
	CASE(utilisation_is_that_of_own_processes);
	CASE(without_numbers_by_process_the_drivers_stand);
	CASE(single_samples_are_no_sum);
	CASE(nvidia_smi_lists_no_other_tenant);
	CASE(a_private_table_that_is_not_known_is_the_drivers);
	return summary();
}
