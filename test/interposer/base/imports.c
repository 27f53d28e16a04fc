/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Where a library keeps the address of a function that it calls, however it was linked. */
#include "harness.h"

#include "base/imports.h"

#include <dlfcn.h>
#include <sys/ioctl.h>

typedef int calling_function(int fd, unsigned long request, void *argument);

static unsigned int calls;

static int ours(int fd, unsigned long request, void *argument)
{
	(void)request, (void)argument;
	calls++;
	return fd;
}

struct loaded {
	calling_function *calling;
	struct link_map *map;
	const void *header;
	int (*(*place)(void))(int, unsigned long, ...);
};

static bool load(const char *library, int flags, struct loaded *loaded)
{
	char path[4096];
	void *handle;
	Dl_info info;

	snprintf(path, sizeof(path), "%s/../test-interposer/helpers/%s", getenv("VGPU_TEST_SIM"), library);
	handle = dlopen(path, flags);
	if (handle == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &loaded->map) != 0)
		return false;
	loaded->calling = (calling_function *)dlsym(handle, "calling");
	loaded->place = (int (*(*)(void))(int, unsigned long, ...))dlsym(handle, "calling_place");
	if (loaded->calling == NULL || dladdr((void *)loaded->calling, &info) == 0)
		return false;
	loaded->header = info.dli_fbase;
	return true;
}

/* The rights of the page, as the kernel shows them. */
static void rights_at(const void *address, char rights[5])
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[4300];

	strcpy(rights, "none");
	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
		char here[5];

		if (sscanf(line, "%lx-%lx %4s", &from, &to, here) == 3 && from <= (unsigned long)address &&
		    (unsigned long)address < to)
			strcpy(rights, here);
	}
	if (maps != NULL)
		fclose(maps);
}

static void is_set(const char *library, int flags, const char *rights, bool bound)
{
	struct vgpu_imports imports;
	struct loaded loaded;
	char now[5];

	CHECK(load(library, flags, &loaded));
	if (failures != 0)
		return;
	CHECK(vgpu_imports_find(loaded.map, loaded.header, "ioctl", &imports));
	CHECK(imports.all && imports.count == 1);
	CHECK(vgpu_imports_has(&imports, *imports.place[0]) == !bound);
	rights_at(imports.place[0], now);
	CHECK(strcmp(now, rights) == 0);
	CHECK(vgpu_imports_set(&imports, 0, (void *)ours));
	rights_at(imports.place[0], now);
	CHECK(strcmp(now, rights) == 0);
	CHECK_IS(loaded.calling(77, 1, NULL), 77);
	CHECK_IS(calls, 1);
	CHECK(vgpu_imports_find(loaded.map, loaded.header, "ioct", &imports));
	CHECK(imports.all && imports.count == 0);
}

static void before_the_first_call(void)
{
	is_set("calling_lazy.so", RTLD_LAZY, "rw-p", false);
}

static void when_it_is_bound_at_once(void)
{
	is_set("calling_lazy.so", RTLD_NOW, "rw-p", true);
}

static void where_the_page_is_read_only(void)
{
	is_set("calling_now.so", RTLD_LAZY, "r--p", true);
}

static void where_it_is_called_without_a_table_of_jumps(void)
{
	is_set("calling_address.so", RTLD_LAZY, "r--p", true);
}

static void in_a_table_of_its_own(void)
{
	struct vgpu_imports imports;
	struct loaded loaded;

	CHECK(load("calling_data.so", RTLD_LAZY, &loaded));
	CHECK(failures == 0 && vgpu_imports_find(loaded.map, loaded.header, "ioctl", &imports));
	CHECK(imports.all && imports.count == 2);
	for (uint32_t i = 0; failures == 0 && i < imports.count; i++)
		CHECK(vgpu_imports_set(&imports, i, (void *)ours));
	CHECK(loaded.calling(5, 1, NULL) == 5 && loaded.place()(6, 1, NULL) == 6);
	CHECK_IS(calls, 2);
}

static void who_does_not_call_has_none(void)
{
	struct vgpu_imports imports;
	struct loaded loaded;

	CHECK(load("calling_silent.so", RTLD_LAZY, &loaded));
	CHECK(vgpu_imports_find(loaded.map, loaded.header, "ioctl", &imports));
	CHECK(imports.all && imports.count == 0);
	/* Nor who has the function himself. */
	CHECK(vgpu_imports_find(loaded.map, loaded.header, "calling", &imports));
	CHECK_IS(imports.count, 0);
}

static void what_is_no_image_is_not_read(void)
{
	struct vgpu_imports imports;
	static _Alignas(8) char nothing[4096];
	struct loaded loaded;

	CHECK(load("calling_lazy.so", RTLD_LAZY, &loaded));
	CHECK(!vgpu_imports_find(loaded.map, nothing, "ioctl", &imports));
	memcpy(nothing, loaded.header, sizeof(nothing)); /* it begins somewhere else */
	CHECK(!vgpu_imports_find(loaded.map, nothing, "ioctl", &imports));
}

int main(void)
{
	gpus(0);
	CASE(before_the_first_call);
	CASE(when_it_is_bound_at_once);
	CASE(where_the_page_is_read_only);
	CASE(where_it_is_called_without_a_table_of_jumps);
	CASE(in_a_table_of_its_own);
	CASE(who_does_not_call_has_none);
	CASE(what_is_no_image_is_not_read);
	return summary();
}
