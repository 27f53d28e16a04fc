/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define THREE "devices=3\n" \
	"device0.uuid=GPU-aaaa0000-0000-0000-0000-000000000001\n" \
	"device1.uuid=GPU-aabb0000-0000-0000-0000-000000000002\n" \
	"device2.uuid=GPU-cccc0000-0000-0000-0000-000000000003\n"

TEST(nothing_works_before_cuInit_or_without_a_context)
{
	CUdeviceptr p;
	CUcontext ctx;
	CUdevice device;
	size_t n;
	int count;

	EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
	EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	OK(cuDriverGetVersion(&count));
	EQ(count, 13000);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	EQ(count, 2);
	EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_INVALID_CONTEXT);
	EQ(cuMemGetInfo_v2(&n, &n), CUDA_ERROR_INVALID_CONTEXT);
	EQ(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxGetCurrent(&ctx));
	TRUE(ctx == NULL);
	EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
	OK(cuDeviceTotalMem_v2(&n, 1));
	EQ(n / SIM_MIB, 143771);
}

/* Reports which devices it sees as decimal digits, or 9 for CUDA_ERROR_NO_DEVICE. */
static void report_visible(struct peer *peer)
{
	uint64_t seen = 0;
	int count = 0, rc = cuInit(0);

	if (rc == CUDA_ERROR_NO_DEVICE)
		seen = 9;
	else {
		OK(rc);
		OK(cuDeviceGetCount(&count));
	}
	for (int i = 0; i < count; i++) {
		CUuuid uuid;

		OK(cuDeviceGetUuid(&uuid, i));
		seen = seen * 10 + (unsigned char)uuid.bytes[15];
	}
	peer_say(peer, seen);
}

TEST(CUDA_VISIBLE_DEVICES_is_read_as_the_driver_reads_it)
{
	static const struct {
		const char *text;
		uint64_t seen;
	} rows[] = {
		{ NULL, 123 }, { "", 9 }, { "0", 1 }, { "2,0", 31 }, { "1,5,0", 2 }, { "5,0", 9 },
		{ "-1", 9 }, { "0,-1,1", 1 }, { "0,0", 9 }, { "none", 9 }, { " 1", 2 }, { "1x,0", 21 },
		{ "GPU-cccc0000-0000-0000-0000-000000000003", 3 },
		{ "GPU-cc,GPU-aaaa", 31 }, { "GPU-aa", 9 }, { "GPU-AABB", 2 },
		{ "GPU-cc,GPU-dd,GPU-aaaa", 3 }, { "GPU-cc,GPU-cccc", 9 }, { "GPU-cc,0", 3 },
		{ "0,GPU-cc", 1 }, { "99999999999999999999", 9 },
	};

	configure(THREE);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct peer peer;

		if (rows[i].text != NULL)
			setenv("CUDA_VISIBLE_DEVICES", rows[i].text, 1);
		peer = peer_start(report_visible);
		test_row("%s", rows[i].text != NULL ? rows[i].text : "(unset)");
		EQ(peer_hear(&peer), rows[i].seen);
		OK(peer_wait(&peer));
	}
}

TEST(cuda_puts_the_fastest_first_unless_asked_for_bus_order)
{
	struct peer peer;

	configure(THREE "device2.speed=5\n");
	peer = peer_start(report_visible);
	EQ(peer_hear(&peer), 312);
	OK(peer_wait(&peer));
	setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	peer = peer_start(report_visible);
	EQ(peer_hear(&peer), 123);
	OK(peer_wait(&peer));
}

static void check_only_device_2(void)
{
	char uuid[NVML_DEVICE_UUID_BUFFER_SIZE];
	nvmlDevice_t device;
	unsigned count;
	struct peer peer = peer_start(report_visible);

	EQ(peer_hear(&peer), 3);
	OK(peer_wait(&peer));
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetCount_v2(&count));
	EQ(count, 1);
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	OK(nvmlDeviceGetUUID(device, uuid, sizeof(uuid)));
	OK(strcmp(uuid, "GPU-cccc0000-0000-0000-0000-000000000003"));
	OK(nvmlDeviceGetMinorNumber(device, &count));
	EQ(count, 2);
	EQ(nvmlDeviceGetHandleByUUID("GPU-aaaa0000-0000-0000-0000-000000000001", &device),
	   NVML_ERROR_NOT_FOUND);
}

TEST(a_device_whose_node_does_not_open_is_invisible)
{
	char path[300];

	configure(THREE);
	for (int i = 0; i < 2; i++) { /* a folder cannot be opened for writing, not even by root */
		snprintf(path, sizeof(path), "%s/nvidia%d", node_dir(), i);
		OK(mkdir(path, 0777));
	}
	check_only_device_2();
}

TEST(a_device_node_that_is_masked_by_a_nodev_mount_is_invisible)
{
	char path[300];

	configure(THREE);
	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		test_skip("no private mount namespace here");
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/nvidia%d", node_dir(), i);
		if (mknod(path, S_IFCHR | 0666, makedev(1, 3)) != 0)
			test_skip("device nodes cannot be made here");
		if (i == 2)
			break;
		OK(mount(path, path, NULL, MS_BIND, NULL));
		OK(mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_NODEV | MS_NOEXEC | MS_NOSUID, NULL));
	}
	check_only_device_2();
}

TEST(a_configuration_that_is_not_understood_is_an_error)
{
	configure("devices=2\nmem_mbi=3000\n");
	EQ(cuInit(0), SIM_CUDA_ERROR_OPERATING_SYSTEM);
	EQ(nvmlInit_v2(), NVML_ERROR_UNKNOWN);
	configure("devices=17\n");
	EQ(nvmlInit_v2(), NVML_ERROR_UNKNOWN);
	configure("devices=16\n");
	OK(nvmlInit_v2());
}
