/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The exported functions. A row of the tables without its sim_ function does not link. */
#include "nvml.h"

#define VGPU_NVML(kind, symbol, params, args, ...)                        \
	__attribute__((visibility("default"))) nvmlReturn_t symbol params \
	{                                                                 \
		return sim_##symbol args;                                 \
	}
#include "api/nvml.def"
#define VGPU_NVML(kind, symbol, params, args, ...)                        \
	__attribute__((visibility("default"))) nvmlReturn_t symbol params \
	{                                                                 \
		return sim_##symbol args;                                 \
	}
#include "extra.def"

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result)
{
	switch ((int)result) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_ERROR_UNINITIALIZED:
		return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT:
		return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED:
		return "Not Supported";
	case NVML_ERROR_NO_PERMISSION:
		return "Insufficient Permissions";
	case NVML_ERROR_NOT_FOUND:
		return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE:
		return "Insufficient Size";
	case SIM_NVML_ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	case NVML_ERROR_FUNCTION_NOT_FOUND:
		return "Function Not Found";
	case NVML_ERROR_GPU_IS_LOST:
		return "GPU is lost";
	case SIM_NVML_ERROR_OPERATING_SYSTEM:
		return "Operating System Error";
	case SIM_NVML_ERROR_MEMORY:
		return "Insufficient Memory";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
		return "Argument Version Mismatch";
	default:
		return "Unknown Error";
	}
}
