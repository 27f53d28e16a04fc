/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * CUDA arrays. Elements are 16 bytes, so that few dimensions make many bytes. */
#include "parts.h"

#define ELEMENT 16ull
#define WIDTH 16384ull /* of a 2D array */
#define SIDE 512ull    /* of layers and slices: 4 MiB each */

static CUarray array;
static CUmipmappedArray mipmapped;

static int start(void)
{
	NEEDS(cuArrayCreate_v2);
	return 0;
}

static int take_2d(uint64_t bytes)
{
	const CUDA_ARRAY_DESCRIPTOR wish = {
		.Width = WIDTH,
		.Height = bytes / (WIDTH * ELEMENT),
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 4,
	};

	return (int)cu.cuArrayCreate_v2(&array, &wish);
}

static void give_array(void)
{
	cu.cuArrayDestroy(array);
}

static CUDA_ARRAY3D_DESCRIPTOR layers(uint64_t bytes, unsigned int flags)
{
	return (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = SIDE,
		.Height = SIDE,
		.Depth = bytes / (SIDE * SIDE * ELEMENT),
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 4,
		.Flags = flags,
	};
}

static int take_3d(uint64_t bytes)
{
	const CUDA_ARRAY3D_DESCRIPTOR wish = layers(bytes, 0);

	return (int)cu.cuArray3DCreate_v2(&array, &wish);
}

/* Seven levels: a third more than the bytes asked for. */
static int take_mipmapped(uint64_t bytes)
{
	const CUDA_ARRAY3D_DESCRIPTOR wish = layers(bytes, CUDA_ARRAY3D_LAYERED);

	return (int)cu.cuMipmappedArrayCreate(&mipmapped, &wish, 7);
}

static void give_mipmapped(void)
{
	cu.cuMipmappedArrayDestroy(mipmapped);
}

struct path array_paths[] = {
	{ .name = "cuArrayCreate", .granule = GRANULE, .most = WIDTH * ELEMENT * 65536, .start = start, .take = take_2d, .give = give_array },
	{ .name = "cuArray3DCreate", .granule = SIDE * SIDE * ELEMENT, .most = SIDE * SIDE * ELEMENT * 16384, .start = start, .take = take_3d, .give = give_array },
	{ .name = "cuMipmappedArrayCreate", .granule = SIDE * SIDE * ELEMENT, .most = SIDE * SIDE * ELEMENT * 2048, .start = start, .take = take_mipmapped, .give = give_mipmapped },
	{ .name = NULL },
};
