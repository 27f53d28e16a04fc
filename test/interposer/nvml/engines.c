/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * NVML's engines beside the multiprocessors, counters and attributes, in a job beside another job's. */
#include "neighbours.h"

static void the_clocks_domains_are_those_of_own_processes(void)
{
	nvmlGpuDynamicPstatesInfo_t info;

	two_jobs("20", "60");
	CHECK(both_sampled(gpu0()));
	memset(&info, 0xff, sizeof(info));
	CHECK_IS(nvmlDeviceGetDynamicPstatesInfo(gpu0(), &info), NVML_SUCCESS);
	for (int domain = 0; domain < NVML_DOMAIN_BUS; domain++) {
		CHECK_IS(info.utilization[domain].bIsPresent, 1);
		CHECK(info.utilization[domain].percentage <= 40);
	}
	CHECK(info.utilization[NVML_DOMAIN_GPU].percentage >= 1);
	CHECK(info.utilization[NVML_DOMAIN_VIDEO].percentage >= 1);
	/* Whose traffic is on the bus is not known. */
	CHECK_IS(info.utilization[NVML_DOMAIN_BUS].bIsPresent, 0);
	CHECK_IS(info.utilization[NVML_DOMAIN_BUS].percentage, 0);
	CHECK_IS(nvmlDeviceGetDynamicPstatesInfo(gpu0(), NULL), NVML_ERROR_INVALID_ARGUMENT);
	end_jobs();
}

static void video_sessions_are_of_own_processes(void)
{
	nvmlEncoderSessionInfo_t encoder[4];
	nvmlFBCSessionInfo_t capture[4];
	nvmlFBCStats_t stats = {9, 9, 9};
	unsigned int count = 0, fps = 0, latency_us = 0;

	gpus(0);
	add_to_conf("sessions=1");
	two_jobs_here("0", "0");
	CHECK_IS(nvmlDeviceGetEncoderSessions(gpu0(), &count, NULL), NVML_SUCCESS);
	CHECK_IS(count, 1);
	count = 4;
	CHECK_IS(nvmlDeviceGetEncoderSessions(gpu0(), &count, encoder), NVML_SUCCESS);
	CHECK_IS(count, 1);
	CHECK_IS(encoder[0].pid, ours);
	CHECK_IS(nvmlDeviceGetEncoderSessions(gpu0(), NULL, encoder), NVML_ERROR_INVALID_ARGUMENT);
	count = 4;
	CHECK_IS(nvmlDeviceGetFBCSessions(gpu0(), &count, capture), NVML_SUCCESS);
	CHECK_IS(count, 1);
	CHECK_IS(capture[0].pid, ours);
	CHECK_IS(nvmlDeviceGetEncoderStats(gpu0(), &count, &fps, &latency_us), NVML_SUCCESS);
	CHECK(count == 1 && fps > 0 && latency_us > 0);
	CHECK_IS(nvmlDeviceGetEncoderStats(gpu0(), &count, NULL, &latency_us), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_IS(nvmlDeviceGetFBCStats(gpu0(), &stats), NVML_SUCCESS);
	CHECK(stats.sessionsCount == 1 && stats.averageFPS > 0 && stats.averageLatency > 0);
	CHECK_IS(nvmlDeviceGetFBCStats(gpu0(), NULL), NVML_ERROR_INVALID_ARGUMENT);
	/* The neighbour alone. */
	kill(ours, SIGKILL);
	waitpid(ours, NULL, 0);
	CHECK_IS(nvmlDeviceGetEncoderStats(gpu0(), &count, &fps, &latency_us), NVML_SUCCESS);
	CHECK_IS(count, 0);
	CHECK_IS(fps, 0);
	CHECK_IS(nvmlDeviceGetFBCStats(gpu0(), &stats), NVML_SUCCESS);
	CHECK_IS(stats.sessionsCount, 0);
	end_jobs();
}

static void sessions_that_nobody_lists_are_not_counted(void)
{
	unsigned int count = 9, fps = 9, latency_us = 9;
	nvmlFBCStats_t stats = {9, 9, 9};

	gpus(0);
	add_to_conf("sessions=2");
	two_jobs_here("0", "0");
	CHECK_IS(nvmlDeviceGetEncoderStats(gpu0(), &count, &fps, &latency_us), NVML_ERROR_NOT_SUPPORTED);
	CHECK(count == 9 && fps == 9 && latency_us == 9);
	CHECK_IS(nvmlDeviceGetFBCStats(gpu0(), &stats), NVML_ERROR_NOT_SUPPORTED);
	CHECK_IS(stats.sessionsCount, 9);
	end_jobs();
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample);
nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample);

static void counters_of_the_whole_gpu_are_for_who_has_it(void)
{
	nvmlGpmSupport_t support = {.version = 1};
	nvmlGpmSample_t sample = NULL;

	two_jobs("0", "0");
	CHECK_IS(nvmlGpmSampleAlloc(&sample), NVML_SUCCESS);
	CHECK_IS(nvmlGpmQueryDeviceSupport(gpu0(), &support), NVML_SUCCESS);
	CHECK_IS(support.isSupportedDevice, 0);
	CHECK_IS(nvmlGpmQueryDeviceSupport(gpu0(), NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_IS(nvmlGpmSampleGet(gpu0(), sample), NVML_ERROR_NOT_SUPPORTED);
	CHECK_IS(nvmlGpmMigSampleGet(gpu0(), 0, sample), NVML_ERROR_NOT_SUPPORTED);
	step.limits->device[0].sm_percent = 100;
	CHECK_IS(nvmlGpmQueryDeviceSupport(gpu0(), &support), NVML_SUCCESS);
	CHECK_IS(support.isSupportedDevice, 1);
	CHECK_IS(nvmlGpmSampleGet(gpu0(), sample), NVML_SUCCESS);
	CHECK_IS(nvmlGpmMigSampleGet(gpu0(), 0, sample), NVML_SUCCESS);
	CHECK_IS(nvmlGpmSampleFree(sample), NVML_SUCCESS);
	end_jobs();
}

static void attributes_have_the_slices_memory(void)
{
	nvmlDeviceAttributes_t attributes = {0};

	gpus(0);
	add_to_conf("mig_attributes=1");
	step = step_make(99, 0, 100, 100);
	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_IS(nvmlDeviceGetAttributes_v2(gpu0(), &attributes), NVML_SUCCESS);
	CHECK_IS(attributes.memorySizeMB, 100);
	attributes.memorySizeMB = 0;
	CHECK_IS(nvmlDeviceGetAttributes(gpu0(), &attributes), NVML_SUCCESS);
	CHECK_IS(attributes.memorySizeMB, 100);
	CHECK_IS(nvmlDeviceGetAttributes_v2(gpu0(), NULL), NVML_ERROR_INVALID_ARGUMENT);
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "work") == 0)
		return work(argv[2]);
	gpus(0);
	CASE(the_clocks_domains_are_those_of_own_processes);
	CASE(video_sessions_are_of_own_processes);
	CASE(sessions_that_nobody_lists_are_not_counted);
	CASE(counters_of_the_whole_gpu_are_for_who_has_it);
	CASE(attributes_have_the_slices_memory);
	return summary();
}
