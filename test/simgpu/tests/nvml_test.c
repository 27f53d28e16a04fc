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
