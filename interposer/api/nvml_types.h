/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * NVML's part of the binary interface that the tables in api/ name; cuda_types.h includes it. */
#ifndef VGPU_API_NVML_TYPES_H
#define VGPU_API_NVML_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef enum nvmlReturn_enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct nvmlMemory_st {
	unsigned long long total;
	unsigned long long free;
	unsigned long long used;
} nvmlMemory_t;

typedef struct nvmlMemory_v2_st {
	unsigned int version;
	unsigned long long total;
	unsigned long long reserved;
	unsigned long long free;
	unsigned long long used;
} nvmlMemory_v2_t;

/* NVML puts a struct's size and its version into the version field. */
#define NVML_MEMORY_V2 ((unsigned int)(sizeof(nvmlMemory_v2_t) | (2u << 24)))

typedef struct nvmlProcessInfo_v1_st {
	unsigned int pid;
	unsigned long long usedGpuMemory; /* NVML_VALUE_NOT_AVAILABLE where it cannot tell */
} nvmlProcessInfo_v1_t;

/* Of the _v2 and the _v3 functions. */
typedef struct nvmlProcessInfo_v2_st {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId;
	unsigned int computeInstanceId;
} nvmlProcessInfo_v2_t;

#define NVML_VALUE_NOT_AVAILABLE (~0ull)
#define NVML_DEVICE_UUID_BUFFER_SIZE 80
#define NVML_DEVICE_UUID_V2_BUFFER_SIZE 96

_Static_assert(sizeof(nvmlMemory_t) == 24, "nvmlMemory_t");
_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "nvmlProcessInfo_v1_t");
_Static_assert(sizeof(nvmlProcessInfo_v2_t) == 24, "nvmlProcessInfo_v2_t");

typedef struct nvmlBAR1Memory_st {
	unsigned long long bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;

typedef struct nvmlUtilization_st {
	unsigned int gpu, memory; /* percent */
} nvmlUtilization_t;

typedef struct nvmlProcessDetail_v1_st {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId;
	unsigned int computeInstanceId;
	unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct nvmlProcessDetailList_v1_st {
	unsigned int version;
	unsigned int mode; /* 0 compute, 1 graphics, 2 MPS */
	unsigned int numProcArrayEntries;
	nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;

/* Of a MIG device: shares of engines, and its memory. */
typedef struct nvmlDeviceAttributes_st {
	unsigned int counts[8];
	unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

/* Domains of nvmlGpuDynamicPstatesInfo_t. */
enum { NVML_DOMAIN_GPU, NVML_DOMAIN_MEMORY, NVML_DOMAIN_VIDEO, NVML_DOMAIN_BUS, NVML_DOMAINS = 8 };

typedef struct nvmlGpuDynamicPstatesInfo_st {
	unsigned int flags;
	struct {
		unsigned int bIsPresent;
		unsigned int percentage; /* over the last second */
		unsigned int incThreshold, decThreshold;
	} utilization[NVML_DOMAINS];
} nvmlGpuDynamicPstatesInfo_t;

typedef struct nvmlEncoderSessionInfo_st {
	unsigned int sessionId, pid, vgpuInstance;
	int codecType;
	unsigned int hResolution, vResolution, averageFps, averageLatency;
} nvmlEncoderSessionInfo_t;

typedef struct nvmlFBCSessionInfo_st {
	unsigned int sessionId, pid, vgpuInstance, displayOrdinal;
	int sessionType;
	unsigned int sessionFlags, hMaxResolution, vMaxResolution, hResolution, vResolution, averageFPS,
		averageLatency;
} nvmlFBCSessionInfo_t;

typedef struct nvmlFBCStats_st {
	unsigned int sessionsCount, averageFPS, averageLatency;
} nvmlFBCStats_t;

typedef struct nvmlGpmSample_st *nvmlGpmSample_t;

typedef struct nvmlGpmSupport_st {
	unsigned int version;
	unsigned int isSupportedDevice;
} nvmlGpmSupport_t;

/* Utilisation of a process: percent over the time since the caller's last look. */
typedef struct nvmlProcessUtilizationSample_st {
	unsigned int pid;
	unsigned long long timeStamp; /* microseconds since 1970 */
	unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct nvmlProcessUtilizationInfo_v1_st {
	unsigned long long timeStamp;
	unsigned int pid;
	unsigned int smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct nvmlProcessesUtilizationInfo_v1_st {
	unsigned int version;
	unsigned int processSamplesCount;
	unsigned long long lastSeenTimeStamp;
	nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;

typedef enum nvmlSamplingType_enum {
	NVML_TOTAL_POWER_SAMPLES = 0,
	NVML_GPU_UTILIZATION_SAMPLES = 1,
	NVML_MEMORY_UTILIZATION_SAMPLES = 2,
	NVML_ENC_UTILIZATION_SAMPLES = 3,
	NVML_DEC_UTILIZATION_SAMPLES = 4,
	NVML_JPG_UTILIZATION_SAMPLES = 8,
	NVML_OFA_UTILIZATION_SAMPLES = 9
} nvmlSamplingType_t;

typedef struct nvmlSample_st {
	unsigned long long timeStamp;
	union {
		unsigned int uiVal;
		unsigned long long ullVal;
	} sampleValue;
} nvmlSample_t;

#define NVML_VALUE_TYPE_UNSIGNED_INT 1

typedef struct nvmlAccountingStats_st {
	unsigned int gpuUtilization, memoryUtilization;
	unsigned long long maxMemoryUsage, time, startTime;
	unsigned int isRunning;
	unsigned int reserved[5];
} nvmlAccountingStats_t;

/* Its pid says whose statistics are asked for; nothing else of it is looked at. */
typedef struct nvmlAccountingStats_v2_st {
	unsigned int pid;
	unsigned int isRunning, gpuUtilization, memoryUtilization;
	unsigned long long maxMemoryUsage;
	unsigned int sampleCount;
	unsigned long long sumGpuUtil, sumFbUtil, time, startTime;
} nvmlAccountingStats_v2_t;

typedef struct nvmlUUID_v1_st {
	unsigned int version;
	unsigned int type; /* 1 text, 2 its 16 bytes */
	union {
		char str[41];
		unsigned char bytes[16];
	} value;
} nvmlUUID_v1_t;

/* As NVML_MEMORY_V2, for the structs whose first version is known. */
#define NVML_STRUCT_V1(type) ((unsigned int)(sizeof(type) | (1u << 24)))

#define NVML_UUID_TYPE_ASCII 1u
#define NVML_UUID_TYPE_BINARY 2u

_Static_assert(sizeof(nvmlProcessDetail_v1_t) == 32, "nvmlProcessDetail_v1_t");
_Static_assert(sizeof(nvmlProcessDetailList_v1_t) == 24, "nvmlProcessDetailList_v1_t");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(nvmlProcessUtilizationInfo_v1_t) == 40, "nvmlProcessUtilizationInfo_v1_t");
_Static_assert(sizeof(nvmlProcessesUtilizationInfo_v1_t) == 24, "nvmlProcessesUtilizationInfo_v1_t");
_Static_assert(sizeof(nvmlSample_t) == 16, "nvmlSample_t");
_Static_assert(sizeof(nvmlAccountingStats_t) == 56, "nvmlAccountingStats_t");
_Static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "nvmlDeviceAttributes_t");
_Static_assert(sizeof(nvmlGpuDynamicPstatesInfo_t) == 132, "nvmlGpuDynamicPstatesInfo_t");
_Static_assert(sizeof(nvmlEncoderSessionInfo_t) == 32, "nvmlEncoderSessionInfo_t");
_Static_assert(sizeof(nvmlFBCSessionInfo_t) == 48, "nvmlFBCSessionInfo_t");
_Static_assert(sizeof(nvmlUUID_v1_t) == 52, "nvmlUUID_v1_t");

/* ---- the private table ----
 *
 * nvidia-smi does not run without the table that nvmlInternalGetExportTable answers to this UUID, and
 * takes its lists of processes from there. What is below was seen in the driver of the 580 branch, by
 * its calls; other branches may have other tables. */

#define NVML_SMI_TABLE_UUID \
	{0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4}
/* The first entry is the size of the whole in bytes, the others are functions. */
#define NVML_SMI_TABLE_ENTRIES 270u
#define NVML_SMI_COMPUTE_LIST 213u
#define NVML_SMI_GRAPHICS_LIST 214u
#define NVML_SMI_MPS_LIST 215u

struct vgpu_smi_process {
	unsigned int pid;
	unsigned long long used_bytes;
	unsigned int gpu_instance, compute_instance;
	unsigned long long protected_bytes;
	char name[4096];
};
_Static_assert(sizeof(struct vgpu_smi_process) == 4128, "an entry of nvidia-smi's list");

/* count is the room in the list, and then the number of entries. */
typedef nvmlReturn_t vgpu_smi_list(nvmlDevice_t device, unsigned int *count, struct vgpu_smi_process *list);

#endif
