/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <string.h>
#include <unistd.h>

static void hold_200_mib(struct peer *peer)
{
	CUdeviceptr p;

	start_cuda();
	OK(cuMemAlloc_v2(&p, 200 * SIM_MIB));
	peer_say(peer, 0);
	peer_hear(peer);
}

TEST(process_lists_name_each_pid_with_its_memory)
{
	nvmlProcessInfo_v2_t list[4];
	nvmlProcessInfo_v1_t old[4];
	nvmlDevice_t device, other;
	struct peer peer[2];
	unsigned count = 0;
	char name[200];

	configure("devices=2\ncontext_mib=100\n");
	peer[0] = peer_start(hold_200_mib);
	peer[1] = peer_start(hold_200_mib);
	peer_hear(&peer[0]);
	peer_hear(&peer[1]);
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	OK(nvmlDeviceGetHandleByIndex_v2(1, &other));
	EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
	EQ(count, 2);
	count = 1;
	EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list), NVML_ERROR_INSUFFICIENT_SIZE);
	EQ(count, 2);
	count = 4;
	OK(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list));
	EQ(count, 2);
	for (int i = 0; i < 2; i++) {
		TRUE(list[i].pid == (unsigned)peer[0].pid || list[i].pid == (unsigned)peer[1].pid);
		EQ(list[i].usedGpuMemory, 300 * SIM_MIB);
		EQ(list[i].gpuInstanceId, 0xffffffffu);
	}
	TRUE(list[0].pid != list[1].pid);
	OK(nvmlSystemGetProcessName(list[0].pid, name, sizeof(name)));
	TRUE(strstr(name, "simgpu-test") != NULL);
	count = 4;
	OK(nvmlDeviceGetComputeRunningProcesses(device, &count, old));
	EQ(old[1].usedGpuMemory, 300 * SIM_MIB);
	count = 0;
	OK(nvmlDeviceGetComputeRunningProcesses_v3(other, &count, NULL));
	OK(nvmlDeviceGetGraphicsRunningProcesses_v3(device, &count, NULL));
	EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, NULL, list), NVML_ERROR_INVALID_ARGUMENT);
	peer_kill(&peer[0]);
	count = 4;
	OK(nvmlDeviceGetComputeRunningProcesses_v2(device, &count, list));
	EQ(count, 1);
	EQ(list[0].pid, peer[1].pid);
	EQ(peer_wait(&peer[0]), 128 + 9);
	peer_say(&peer[1], 0);
	OK(peer_wait(&peer[1]));
}

static void keep_busy(struct peer *peer)
{
	unsigned us = 30000;
	void *params[] = { &us };
	CUmodule module;
	CUfunction function;

	start_cuda();
	OK(cuModuleLoadData(&module, ".visible .entry simgpu_busy_us(.param .u32 us)"));
	OK(cuModuleGetFunction(&function, module, "simgpu_busy_us"));
	for (int i = 0; i < 50; i++)
		OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	peer_say(peer, 0);
	peer_hear(peer);
}

TEST(utilisation_is_told_by_process_and_over_time)
{
	nvmlProcessUtilizationInfo_v1_t info[80];
	nvmlProcessesUtilizationInfo_v1_t infos = { .version = NVML_STRUCT_V1(infos), .procUtilArray = info };
	nvmlProcessUtilizationSample_t sample[80];
	nvmlSample_t series[80];
	unsigned count = 0, most = 0;
	nvmlDevice_t device;
	struct peer peer[2];
	int type;

	configure("devices=1\n");
	peer[0] = peer_start(keep_busy);
	peer[1] = peer_start(hold_200_mib);
	peer_hear(&peer[0]);
	peer_hear(&peer[1]);
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	EQ(nvmlDeviceGetProcessUtilization(device, NULL, &count, 0), NVML_ERROR_INSUFFICIENT_SIZE);
	EQ(count, 72);
	/* The first sample may have begun long before the work. */
	for (int tries = 0; tries < 100 && most <= 50; tries++, usleep(50000)) {
		count = 80;
		if (nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, series) !=
		    NVML_SUCCESS)
			continue;
		for (unsigned i = 0; i < count; i++)
			most = series[i].sampleValue.uiVal > most ? series[i].sampleValue.uiVal : most;
	}
	TRUE(most > 50 && most <= 100);
	count = 80;
	OK(nvmlDeviceGetProcessUtilization(device, sample, &count, 0));
	EQ(count, 1); /* a mean */
	EQ(sample[0].pid, peer[0].pid);
	TRUE(sample[0].smUtil <= 100 && sample[0].timeStamp > 0);
	EQ(nvmlDeviceGetProcessesUtilizationInfo(device, &infos), NVML_ERROR_INSUFFICIENT_SIZE);
	EQ(infos.processSamplesCount, 72);
	OK(nvmlDeviceGetProcessesUtilizationInfo(device, &infos));
	EQ(infos.processSamplesCount, 1);
	EQ(info[0].pid, peer[0].pid);
	EQ(nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, ~0ull / 2, &type, &count, series),
	   NVML_ERROR_NOT_FOUND);
	for (int i = 0; i < 2; i++) {
		peer_say(&peer[i], 0);
		OK(peer_wait(&peer[i]));
	}
}

TEST(nvidia_smis_private_table_has_the_processes)
{
	static const unsigned char uuid[16] = NVML_SMI_TABLE_UUID, other[16] = { 1 };
	static struct vgpu_smi_process list[4];
	nvmlProcessDetail_v1_t detail[4];
	nvmlProcessDetailList_v1_t details = {
		.version = NVML_STRUCT_V1(details), .numProcArrayEntries = 4, .procArray = detail};
	const void *table;
	unsigned count = 4, pids[4];
	nvmlAccountingStats_t stats;
	nvmlDevice_t device;
	struct peer peer;
	vgpu_smi_list *ask;

	configure("devices=1\ncontext_mib=0\n");
	peer = peer_start(hold_200_mib);
	peer_hear(&peer);
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	EQ(nvmlInternalGetExportTable(&table, other), NVML_ERROR_INVALID_ARGUMENT);
	OK(nvmlInternalGetExportTable(&table, uuid));
	EQ((uintptr_t) * (void *const *)table, NVML_SMI_TABLE_ENTRIES * 8);
	memcpy(&ask, (void *const *)table + NVML_SMI_COMPUTE_LIST, sizeof(ask));
	OK(ask(device, &count, list));
	EQ(count, 1);
	EQ(list[0].pid, peer.pid);
	EQ(list[0].used_bytes, 200 * SIM_MIB);
	TRUE(strstr(list[0].name, "simgpu-test") != NULL);
	OK(nvmlDeviceGetRunningProcessDetailList(device, &details));
	EQ(details.numProcArrayEntries, 1);
	EQ(detail[0].usedGpuMemory, 200 * SIM_MIB);
	count = 4;
	OK(nvmlDeviceGetAccountingPids(device, &count, pids));
	EQ(pids[0], peer.pid);
	OK(nvmlDeviceGetAccountingStats(device, pids[0], &stats));
	EQ(stats.maxMemoryUsage, 200 * SIM_MIB);
	EQ(nvmlDeviceGetAccountingStats(device, 1, &stats), NVML_ERROR_NOT_FOUND);
	peer_say(&peer, 0);
	OK(peer_wait(&peer));
}

TEST(a_gpu_is_found_by_every_key)
{
	nvmlUUID_v1_t key = { .version = NVML_STRUCT_V1(key), .type = NVML_UUID_TYPE_ASCII };
	nvmlDevice_t device, same = NULL, set[2];
	unsigned count = 2;
	char serial[40];

	configure("devices=2\ndevice1.uuid=GPU-00000000-1111-2222-3333-00000000000b\n");
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(1, &device));
	strcpy(key.value.str, "GPU-00000000-1111-2222-3333-00000000000b");
	OK(nvmlDeviceGetHandleByUUIDV(&key, &same));
	TRUE(same == device);
	key.type = NVML_UUID_TYPE_BINARY;
	memcpy(key.value.bytes, "\0\0\0\0\x11\x11\x22\x22\x33\x33\0\0\0\0\0\x0b", 16);
	OK(nvmlDeviceGetHandleByUUIDV(&key, &same));
	TRUE(same == device);
	key.type = 3;
	EQ(nvmlDeviceGetHandleByUUIDV(&key, &same), NVML_ERROR_INVALID_ARGUMENT);
	OK(nvmlDeviceGetSerial(device, serial, sizeof(serial)));
	OK(nvmlDeviceGetHandleBySerial(serial, &same));
	TRUE(same == device);
	EQ(nvmlDeviceGetHandleBySerial("1", &same), NVML_ERROR_NOT_FOUND);
	OK(nvmlSystemGetTopologyGpuSet(0, &count, set));
	EQ(count, 2);
	OK(nvmlDeviceGetTopologyNearestGpus(device, 30, &count, set));
	EQ(count, 1);
	TRUE(set[0] != device);
}

TEST(memory_info_adds_up_in_both_versions_and_agrees_with_cuda)
{
	nvmlMemory_v2_t v2 = { .version = NVML_MEMORY_V2 };
	nvmlMemory_t v1;
	nvmlDevice_t device;

	configure("mem_mib=1000\ncontext_mib=100\nreserved_mib=50\n");
	start_cuda();
	EQ(free_mib(), 850);
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	OK(nvmlDeviceGetMemoryInfo(device, &v1));
	EQ(v1.total, 1000 * SIM_MIB);
	EQ(v1.used, 150 * SIM_MIB);
	EQ(v1.free, 850 * SIM_MIB);
	OK(nvmlDeviceGetMemoryInfo_v2(device, &v2));
	EQ(v2.used, 100 * SIM_MIB);
	EQ(v2.reserved, 50 * SIM_MIB);
	EQ(v2.free, 850 * SIM_MIB);
	v2.version = 2;
	EQ(nvmlDeviceGetMemoryInfo_v2(device, &v2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

TEST(index_minor_and_bus_are_three_different_things)
{
	nvmlDevice_t device, same;
	unsigned minor, index;
	nvmlPciInfo_t pci;
	char uuid[80], small[10];

	configure("devices=2\ndevice0.minor=4\ndevice1.minor=3\ndevice0.pci_bus=200\ndevice1.pci_bus=3\n");
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	OK(nvmlDeviceGetMinorNumber(device, &minor));
	EQ(minor, 3);
	OK(nvmlDeviceGetPciInfo_v3(device, &pci));
	OK(strcmp(pci.busId, "00000000:03:00.0"));
	OK(nvmlDeviceGetHandleByPciBusId_v2("0000:C8:00.0", &device));
	OK(nvmlDeviceGetIndex(device, &index));
	EQ(index, 1);
	OK(nvmlDeviceGetUUID(device, uuid, sizeof(uuid)));
	EQ(strlen(uuid), 40);
	OK(nvmlDeviceGetHandleByUUID(uuid, &same));
	TRUE(same == device);
	EQ(nvmlDeviceGetUUID(device, small, sizeof(small)), NVML_ERROR_INSUFFICIENT_SIZE);
	EQ(nvmlDeviceGetHandleByIndex_v2(2, &device), NVML_ERROR_INVALID_ARGUMENT);
	EQ(nvmlDeviceGetMinorNumber(NULL, &minor), NVML_ERROR_INVALID_ARGUMENT);
}

TEST(nvml_counts_its_users_and_tells_of_a_lost_gpu)
{
	nvmlDevice_t device;
	unsigned count;
	int visible;

	configure("devices=2\ndevice0.lost=1\n");
	EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
	EQ(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	OK(nvmlInit_v2());
	OK(nvmlInit_v2());
	OK(nvmlShutdown());
	OK(nvmlDeviceGetCount_v2(&count));
	EQ(count, 2);
	EQ(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_GPU_IS_LOST);
	OK(nvmlDeviceGetHandleByIndex_v2(1, &device));
	OK(nvmlShutdown());
	EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&visible));
	EQ(visible, 1);
}
