/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The types of extra.def that the interposer's table does not need. Values are the driver's. */
#ifndef SIMGPU_SIM_TYPES_H
#define SIMGPU_SIM_TYPES_H

#include "api/cuda_types.h"

/* Results beyond those that the interposer names. */
enum {
	SIM_CUDA_ERROR_INVALID_IMAGE = 200,
	SIM_CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	SIM_CUDA_ERROR_OPERATING_SYSTEM = 304,
	SIM_CUDA_ERROR_NOT_READY = 600,
	SIM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	SIM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713
};

typedef struct CUmemAccessDesc_st {
	CUmemLocation location;
	int flags;
} CUmemAccessDesc;

_Static_assert(sizeof(CUmemAccessDesc) == 12, "CUmemAccessDesc");

#define CU_STREAM_WAIT_VALUE_GEQ 0u
#define CU_STREAM_WAIT_VALUE_EQ 1u

/* attributes of cuPointerGetAttribute */
#define CU_POINTER_ATTRIBUTE_MEMORY_TYPE 2
#define CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL 9

#define SIM_STREAM_NON_BLOCKING 1u
#define SIM_EVENT_DISABLE_TIMING 2u

enum {
	SIM_POOL_REUSE_FOLLOW_EVENT = 1,
	SIM_POOL_REUSE_OPPORTUNISTIC,
	SIM_POOL_REUSE_INTERNAL,
	SIM_POOL_RELEASE_THRESHOLD,
	SIM_POOL_RESERVED_CURRENT,
	SIM_POOL_RESERVED_HIGH,
	SIM_POOL_USED_CURRENT,
	SIM_POOL_USED_HIGH
};

/* NVML */
typedef struct nvmlPciInfo_st {
	char busIdLegacy[16];
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;

typedef struct nvmlTemperature_v1_st {
	unsigned int version;
	int sensorType;
	int temperature;
} nvmlTemperature_v1_t;

typedef struct nvmlSetMemoryLimits_v1_st {
	const char *nameSpace; /* the folder of a cgroup */
	unsigned long long softLimit, hardLimit;
} nvmlSetMemoryLimits_v1_t;

typedef struct nvmlGetMemoryLimits_v1_st {
	const char *nameSpace;
	unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;

typedef struct nvmlGpmMetric_st {
	unsigned int metricId;
	nvmlReturn_t nvmlReturn;
	double value;
	const char *names[3]; /* short, long, unit */
} nvmlGpmMetric_t;

typedef struct nvmlGpmMetricsGet_st {
	unsigned int version, numMetrics;
	nvmlGpmSample_t sample1, sample2;
	nvmlGpmMetric_t metrics[]; /* as many as a caller's header knows */
} nvmlGpmMetricsGet_t;

_Static_assert(sizeof(nvmlGpmMetric_t) == 40, "nvmlGpmMetric_t");
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "nvmlPciInfo_t");

enum {
	SIM_NVML_ERROR_MEMORY = 20,
	SIM_NVML_ERROR_OPERATING_SYSTEM = 17,
	SIM_NVML_ERROR_DRIVER_NOT_LOADED = 9,
};

#endif
