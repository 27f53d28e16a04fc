/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * opencl.c: how much of the GPU's memory a program gets by OpenCL: opencl MIB prints "N MiB", or what
 * failed. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <string.h>

#include "other.h"

static cl_device_id gpu_of_nvidia(void)
{
	cl_platform_id platforms[8];
	cl_device_id device = NULL;
	cl_uint count = 0;
	char vendor[128];

	if (clGetPlatformIDs(8, platforms, &count) != CL_SUCCESS)
		return NULL;
	for (cl_uint i = 0; i < count && i < 8 && device == NULL; i++)
		if (clGetPlatformInfo(platforms[i], CL_PLATFORM_VENDOR, sizeof(vendor), vendor, NULL) ==
			    CL_SUCCESS &&
		    strstr(vendor, "NVIDIA") != NULL &&
		    clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_GPU, 1, &device, NULL) != CL_SUCCESS)
			device = NULL;
	return device;
}

int main(int argc, char **argv)
{
	const unsigned wanted = wanted_mib(argc, argv);
	const cl_uint zero = 0;
	cl_device_id device = gpu_of_nvidia();
	cl_int error = CL_SUCCESS;
	unsigned got = 0;

	if (device == NULL)
		return nothing("no GPU of NVIDIA's");
	cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
	if (error != CL_SUCCESS)
		return nothing("no context");
	cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
	while (error == CL_SUCCESS && got < wanted) {
		cl_mem block = clCreateBuffer(context, CL_MEM_READ_WRITE, PIECE_BYTES, NULL, &error);
		if (error == CL_SUCCESS) /* a block is only there once something is written */
			error = clEnqueueFillBuffer(queue, block, &zero, sizeof(zero), 0, PIECE_BYTES, 0,
						    NULL, NULL);
		if (error == CL_SUCCESS)
			error = clFinish(queue);
		if (error == CL_SUCCESS)
			got += PIECE_MIB;
	}
	return hold(got);
}
