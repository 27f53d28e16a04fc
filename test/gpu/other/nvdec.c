/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * nvdec.c: how much of the GPU's memory decoders of video take: nvdec MIB prints "N MiB", by what CUDA
 * says is free before and after, or what failed. */
#include <dlfcn.h>
#include <ffnvcodec/dynlink_cuda.h>
#include <ffnvcodec/dynlink_cuviddec.h>

#include "other.h"

static struct {
	tcuInit *init;
	CUresult (*retain)(CUcontext *context, CUdevice device);
	CUresult (*current)(CUcontext context);
	CUresult (*free)(size_t *free, size_t *total);
	tcuvidCreateDecoder *decoder;
} cu;

static int load(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *video = dlopen("libnvcuvid.so.1", RTLD_NOW);

	if (driver == NULL || video == NULL)
		return -1;
	*(void **)&cu.init = dlsym(driver, "cuInit");
	*(void **)&cu.retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&cu.current = dlsym(driver, "cuCtxSetCurrent");
	*(void **)&cu.free = dlsym(driver, "cuMemGetInfo_v2");
	*(void **)&cu.decoder = dlsym(video, "cuvidCreateDecoder");
	return cu.init && cu.retain && cu.current && cu.free && cu.decoder ? 0 : -1;
}

int main(int argc, char **argv)
{
	const unsigned wanted = wanted_mib(argc, argv);
	CUVIDDECODECREATEINFO info = {.ulWidth = 4096,
				      .ulHeight = 4096,
				      .ulMaxWidth = 4096,
				      .ulMaxHeight = 4096,
				      .ulNumDecodeSurfaces = 20,
				      .CodecType = cudaVideoCodec_H264,
				      .ChromaFormat = cudaVideoChromaFormat_420,
				      .OutputFormat = cudaVideoSurfaceFormat_NV12,
				      .ulTargetWidth = 4096,
				      .ulTargetHeight = 4096,
				      .ulNumOutputSurfaces = 4};
	CUcontext context;
	CUvideodecoder decoder;
	size_t before = 0, now = 0, total;
	unsigned count = 0;

	if (load() != 0)
		return nothing("no decoder of video");
	if (cu.init(0) != CUDA_SUCCESS || cu.retain(&context, 0) != CUDA_SUCCESS ||
	    cu.current(context) != CUDA_SUCCESS)
		return nothing("no context");
	cu.free(&before, &total);
	/* A decoder of this size has some 500 MiB of surfaces. */
	while (count < wanted / 512 && cu.decoder(&decoder, &info) == CUDA_SUCCESS)
		count++;
	cu.free(&now, &total);
	printf("%u decoders\n", count);
	return hold((unsigned)((before - now) >> 20));
}
