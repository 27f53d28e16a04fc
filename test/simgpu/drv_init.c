/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "drv_control.h"
#include "drv_share.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

struct sim_driver drv = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool initialised;
/* A page that a forked child finds empty: the driver does not survive fork, and a child made by a
 * raw clone must notice too. */
static volatile uint32_t *alive;

CUresult drv_ready(void)
{
	if (!__atomic_load_n(&initialised, __ATOMIC_ACQUIRE) || *alive == 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	return CUDA_SUCCESS;
}

static CUresult start(void)
{
	void *page;
	int rc = sim_attach();

	if (rc != 0)
		return (CUresult)SIM_CUDA_ERROR_OPERATING_SYSTEM;
	sim_conf_probe_nodes(&sim_conf);
	drv.count = drv_visible(getenv("CUDA_VISIBLE_DEVICES"), drv.device);
	if (drv.count == 0)
		return CUDA_ERROR_NO_DEVICE;
	if (sim_proc_register() != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	NEED(drv_control_start());
	for (int i = 0; i < drv.count; i++)
		NEED(drv_pool_init(i));
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK) != 0)
		return (CUresult)SIM_CUDA_ERROR_OPERATING_SYSTEM;
	alive = page;
	*alive = 1;
	__atomic_store_n(&initialised, true, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

CUresult sim_cuInit(unsigned int flags)
{
	CUresult result;

	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (__atomic_load_n(&initialised, __ATOMIC_ACQUIRE))
		return drv_ready();
	drv_lock();
	result = initialised ? CUDA_SUCCESS : start();
	return drv_unlock(result);
}

CUresult drv_device(CUdevice device)
{
	NEED(drv_ready());
	return device >= 0 && device < drv.count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static const struct sim_device_conf *conf_of(CUdevice device)
{
	return &sim_conf.device[drv.device[device]];
}

CUresult sim_cuDriverGetVersion(int *version)
{
	if (version == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_attach() != 0)
		return CUDA_ERROR_UNKNOWN;
	*version = sim_conf.cuda_version;
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGet(CUdevice *device, int ordinal)
{
	NEED(drv_ready());
	if (device == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(ordinal));
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetCount(int *count)
{
	NEED(drv_ready());
	if (count == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*count = drv.count;
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetName(char *name, int length, CUdevice device)
{
	NEED(drv_ready());
	if (name == NULL || length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	snprintf(name, (size_t)length, "%s", conf_of(device)->name);
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	NEED(drv_ready());
	if (uuid == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	memcpy(uuid->bytes, conf_of(device)->uuid_raw, sizeof(uuid->bytes));
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	return sim_cuDeviceGetUuid(uuid, device);
}

CUresult sim_cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	NEED(drv_ready());
	if (major == NULL || minor == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	*major = conf_of(device)->cc_major;
	*minor = conf_of(device)->cc_minor;
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	NEED(drv_ready());
	if (value == NULL || attribute <= 0 || attribute > 160)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	switch (attribute) {
	case 1:	 /* threads per block */
	case 2:	 /* block x */
	case 3:	 /* block y */
		*value = 1024;
		break;
	case 4: /* block z */
		*value = 64;
		break;
	case 10: /* warp */
		*value = 32;
		break;
	case 16:
		*value = conf_of(device)->sm_count;
		break;
	case 33:
		*value = (int)conf_of(device)->pci_bus;
		break;
	case 34: /* PCI device */
	case 50: /* PCI domain */
		*value = 0;
		break;
	case 39: /* threads per multiprocessor */
		*value = 2048;
		break;
	case 75:
		*value = conf_of(device)->cc_major;
		break;
	case 76:
		*value = conf_of(device)->cc_minor;
		break;
	case 41:  /* unified addressing */
	case 83:  /* managed memory */
	case 89:  /* concurrent managed access */
	case 102: /* virtual memory management */
	case 115: /* memory pools */
		*value = 1;
		break;
	default:
		*value = 0; /* a feature that is not there */
	}
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	NEED(drv_ready());
	if (id == NULL || length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	snprintf(id, (size_t)length, "0000:%02X:00.0", conf_of(device)->pci_bus);
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
	char own[32];

	NEED(drv_ready());
	if (device == NULL || id == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < drv.count; i++) {
		NEED(sim_cuDeviceGetPCIBusId(own, sizeof(own), i));
		if (strcasecmp(own, id) == 0 || strcasecmp(own + 5, id) == 0) {
			*device = i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	NEED(drv_ready());
	if (can == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	NEED(drv_device(peer));
	*can = device != peer;
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	NEED(drv_ready());
	if (bytes == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	*bytes = conf_of(device)->mem_bytes - conf_of(device)->reserved_bytes;
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
	size_t wide;

	NEED(drv_ready());
	if (bytes == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(sim_cuDeviceTotalMem_v2(&wide, device));
	*bytes = wide > UINT32_MAX ? UINT32_MAX : (unsigned int)wide;
	return CUDA_SUCCESS;
}

/* The real driver looks names up itself, and an interposer that answers such a call with its own
 * wrapper loops. Tests ask through this; the simulated driver itself never does. */
CUresult sim_cuSimDlsym(void *handle, const char *name, void **symbol)
{
	if (name == NULL || symbol == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*symbol = dlsym(handle, name);
	return *symbol != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

unsigned drv_times[SIM_ASKED];

CUresult sim_cuSimAsked(const char *name, unsigned int *times)
{
	static const char *const names[SIM_ASKED] = {
		[SIM_ASKED_CAPTURING] = "cuStreamIsCapturing",
		[SIM_ASKED_POOL] = "cuMemPoolGetAttribute",
		[SIM_ASKED_CHOICE] = "cuDeviceGetMemPool",
		[SIM_ASKED_INFO] = "cuMemGetInfo",
		[SIM_ASKED_BETWEEN] = "cuEventElapsedTime",
		[SIM_ASKED_EVENT] = "cuEventQuery",
		[SIM_ASKED_CURRENT] = "cuCtxGetCurrent",
		[SIM_ASKED_RECORD] = "cuEventRecord",
		[SIM_EVENTS_MADE] = "cuEventCreate",
		[SIM_ARRAYS_MADE] = "cuArray3DCreate",
		[SIM_ARRAYS_GONE] = "cuArrayDestroy",
	};

	for (int i = 0; i < SIM_ASKED; i++)
		if (strcmp(names[i], name) == 0) {
			*times = __atomic_load_n(&drv_times[i], __ATOMIC_RELAXED);
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuSimFailNext(unsigned int count)
{
	drv_lock();
	drv.fail_next = count;
	return drv_unlock(CUDA_SUCCESS);
}

static const char *within_name;
static void (*within)(void);

void drv_within(const char *name)
{
	void (*what)(void) = NULL;

	drv_lock();
	if (within_name != NULL && strcmp(within_name, name) == 0) {
		what = within;
		within_name = NULL;
	}
	drv_unlock(CUDA_SUCCESS);
	if (what != NULL)
		what();
}

CUresult sim_cuSimWithin(const char *name, void (*what)(void))
{
	drv_lock();
	within_name = name;
	within = what;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuSimHeld(CUdevice device, size_t *own, size_t *all)
{
	NEED(drv_device(device));
	drv_lock();
	drv_descriptor_look();
	drv_unlock(CUDA_SUCCESS);
	if (own != NULL)
		*own = sim_state()->proc[sim_own_slot()].device[drv.device[device]].mem_bytes;
	if (all != NULL)
		*all = sim_mem_held(drv.device[device]);
	return CUDA_SUCCESS;
}

CUresult sim_cuSimHighest(CUdevice device, size_t *bytes)
{
	NEED(drv_device(device));
	*bytes = sim_mem_highest(drv.device[device]);
	return CUDA_SUCCESS;
}

CUresult sim_cuSimBusy(CUdevice device, unsigned long long *ns)
{
	NEED(drv_device(device));
	*ns = sim_state()->proc[sim_own_slot()].device[drv.device[device]].busy_ns;
	return CUDA_SUCCESS;
}
