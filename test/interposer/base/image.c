/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Names in an image are found as the dynamic linker finds them, by whichever table of them it has. */
#include "harness.h"

#include "base/image.h"

#include <dlfcn.h>

static bool image_of(void *handle, struct vgpu_image *image)
{
	struct link_map *map = NULL;

	return handle != NULL && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && vgpu_image_of_map(map, image);
}

static void names_are_found(const char *library, bool has_gnu_hash)
{
	struct vgpu_image image;
	char path[4096];
	void *handle;

	snprintf(path, sizeof(path), "%s/../test-interposer/helpers/%s", getenv("VGPU_TEST_SIM"), library);
	handle = dlopen(path, RTLD_NOW);
	CHECK(handle != NULL && image_of(handle, &image));
	if (failures != 0)
		return;
	CHECK((image.gnu_hash != NULL) == has_gnu_hash);
	CHECK((image.hash != NULL) == !has_gnu_hash);
	for (int n = 10; n < 100; n++) {
		char name[40];

		snprintf(name, sizeof(name), "named_%d", n);
		CHECK(vgpu_image_find(&image, name) != NULL &&
		      vgpu_image_find(&image, name) == dlsym(handle, name));
		snprintf(name, sizeof(name), "named_%d", n * 100);
		CHECK(vgpu_image_find(&image, name) == NULL);
	}
	CHECK(vgpu_image_find(&image, "named_pointer") == dlsym(handle, "named_pointer"));
	CHECK(vgpu_image_find(&image, "named_elsewhere") == NULL);
	CHECK(vgpu_image_find(&image, "") == NULL);
}

static void names_are_found_by_the_table_of_today(void)
{
	names_are_found("named.so", true);
}

static void names_are_found_by_the_table_of_the_gabi(void)
{
	names_are_found("named_sysv.so", false);
}

/* Of several versions the default one: memcpy has two on x86-64. */
static void the_default_version_is_found(void)
{
	struct vgpu_image image;
	void *libc = dlopen("libc.so.6", RTLD_NOW);

	CHECK(image_of(libc, &image));
#ifdef __x86_64__
	CHECK(dlvsym(libc, "pthread_cond_wait", "GLIBC_2.2.5") !=
	      dlvsym(libc, "pthread_cond_wait", "GLIBC_2.3.2"));
	CHECK(vgpu_image_find(&image, "pthread_cond_wait") ==
	      dlvsym(libc, "pthread_cond_wait", "GLIBC_2.3.2"));
#endif
	CHECK(vgpu_image_find(&image, "getpid") == dlsym(libc, "getpid"));
}

int main(void)
{
	gpus(0);
	CASE(names_are_found_by_the_table_of_today);
	CASE(names_are_found_by_the_table_of_the_gabi);
	CASE(the_default_version_is_found);
	return summary();
}
