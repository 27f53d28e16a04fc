/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Any name, by any lookup: exactly the table's functions become ours, and everything else is what the
 * C library or the driver says. Preloaded, lookups go through dlsym; where the library is part of the
 * program, to what stands behind that. */
#include "base/libc.h"
#include "fuzz.h"
#include "harness.h"
#include "route/route.h"

#include <dlfcn.h>

#define LONGEST (1u << 20)

#pragma weak vgpu_route_dlsym
#pragma weak vgpu_route_dlvsym

static void *cuda, *nvml, *libc;

static const char *const names[] = {
#define VGPU_CUDA(kind, symbol, base, ...) #symbol, #base,
#include "api/cuda.def"
#define VGPU_NVML(kind, symbol, ...) #symbol,
#include "api/nvml.def"
	"cuGetExportTable", "cuLaunchKernel", "cuStreamWaitEvent", "cuNoSuchThing", "dlsym", "dlvsym", "malloc", "memcpy", "main",
	"nvmlSystemGetNVMLVersion", "cu", "nv", "c", "n", "", "_ZN", "cuMem", "nvmlDeviceGet",
};

static const struct {
	const char *symbol;
	bool wrapped;
	bool is_nvml;
} rows[] = {
#define VGPU_CUDA(kind, symbol, ...) {#symbol, #kind[0] != 'U' || #kind[1] != 'S' || #kind[2] != 'E', false},
#include "api/cuda.def"
#define VGPU_NVML(kind, symbol, ...) {#symbol, #kind[0] != 'U' || #kind[1] != 'S' || #kind[2] != 'E', true},
#include "api/nvml.def"
};

static bool is_wrapped(const char *name, bool is_nvml)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].wrapped && rows[i].is_nvml == is_nvml && strcmp(rows[i].symbol, name) == 0)
			return true;
	return false;
}

/* On the heap, and not a byte longer than it must be: a reader of more is caught. */
static char *any_name(struct fuzz *f)
{
	static const char *const ends[] = {"_v2",      "_v3", "_v4", "_ptsz", "_ptds",
					   "_v2_ptds", "x",   "_",   "Async"};
	const char *base = names[fuzz_below(f, sizeof(names) / sizeof(names[0]))];
	const char *end = fuzz_below(f, 3) == 0 ? ends[fuzz_below(f, sizeof(ends) / sizeof(ends[0]))] : "";
	size_t length = strlen(base), more = strlen(end);
	size_t fill = fuzz_below(f, 200) == 0 ? fuzz_below(f, LONGEST) : 0;
	char *name;

	if (length > 0 && fuzz_below(f, 6) == 0)
		length = fuzz_below(f, (uint32_t)length); /* a prefix, as many names have in common */
	name = malloc(length + more + fill + 1);
	memcpy(name, base, length);
	memcpy(name + length, end, more);
	memset(name + length + more, 'a', fill);
	name[length + more + fill] = '\0';
	for (uint32_t i = fuzz_below(f, 8) == 0 && length > 0 ? 1 + fuzz_below(f, 3) : 0; i > 0; i--)
		name[fuzz_below(f, (uint32_t)length)] = (char)(1 + fuzz_below(f, 255));
	return name;
}

static void *look_up(void *handle, const char *name)
{
	struct vgpu_route route;

	if (vgpu_route_dlsym == NULL)
		return dlsym(handle, name);
	route = vgpu_route_dlsym(handle, name, __builtin_return_address(0));
	return route.tail != NULL ? vgpu_libc()->dlsym(handle, name) : route.answer;
}

static void *look_up_version(void *handle, const char *name, const char *version)
{
	struct vgpu_route route;

	if (vgpu_route_dlvsym == NULL)
		return dlvsym(handle, name, version);
	route = vgpu_route_dlvsym(handle, name, __builtin_return_address(0), version);
	return route.tail != NULL ? vgpu_libc()->dlvsym(handle, name, version) : route.answer;
}

static bool is_ours(const void *address)
{
	Dl_info info, program;

	return address != NULL && dladdr(address, &info) != 0 && dladdr((void *)is_ours, &program) != 0 &&
	       (strstr(info.dli_fname, "libslurm-vgpu.so") != NULL || info.dli_fbase == program.dli_fbase);
}

static void names_by_handle(struct fuzz *f)
{
	void *handles[] = {cuda, nvml, libc, RTLD_DEFAULT, RTLD_NEXT};

	for (int i = 0; i < 200; i++) {
		char *name = any_name(f);
		uint32_t h = fuzz_below(f, 5);
		void *plain = vgpu_libc()->dlsym(handles[h], name);
		void *found = look_up(handles[h], name);
		/* The lookups themselves have no row, but the C library's are not given out (loaded.c). */
		bool lookup = strcmp(name, "dlsym") == 0 || strcmp(name, "dlvsym") == 0;
		bool row = is_wrapped(name, false) || is_wrapped(name, true);
		/* Not "": glibc 2.36 itself does not survive that where a library has no versions. */
		static const char *const versions[] = {"GLIBC_2.2.5",  "GLIBC_2.34", "GLIBC_2.17",
						       "libcuda.so.1", "GLIBC_",     "x"};
		const char *version = versions[fuzz_below(f, 6)];

		/* What RTLD_DEFAULT and RTLD_NEXT mean in a program that is itself the library is another
		 * story. */
		if (h <= 2 || vgpu_route_dlsym == NULL) {
			if (lookup)
				CHECK((found == NULL) == (plain == NULL));
			else if (!row)
				CHECK(found == plain || (h == 4 && plain == NULL));
			else if (h <= 2)
				CHECK(plain == NULL ? found == NULL : is_ours(found));
			else
				CHECK(is_ours(found));
		}
		found = look_up_version(handles[h], name, version);
		if (!row && !lookup && h != 4)
			CHECK(found == vgpu_libc()->dlvsym(handles[h], name, version));
		if (row && h <= 2)
			CHECK(vgpu_libc()->dlvsym(handles[h], name, version) == NULL ? found == NULL
										     : is_ours(found));
		if (failures != 0)
			fprintf(stderr, "%.100s of handle %u, version %s\n", name, h, version);
		free(name);
	}
}

typedef CUresult get_v1(const char *, void **, int, cuuint64_t);
typedef CUresult get_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/* What the driver gave, given on: ours where it is a function of the table. */
static void check_given(void *found, void *plain)
{
	Dl_info info;

	if (plain != NULL && dladdr(plain, &info) != 0 && info.dli_sname != NULL &&
	    is_wrapped(info.dli_sname, false))
		CHECK(found == look_up(cuda, info.dli_sname) && is_ours(found));
	else
		CHECK(found == plain);
}

static void names_by_the_driver(struct fuzz *f)
{
	get_v1 *real_v1 = (get_v1 *)vgpu_libc()->dlsym(cuda, "cuGetProcAddress");
	get_v2 *real_v2 = (get_v2 *)vgpu_libc()->dlsym(cuda, "cuGetProcAddress_v2");

	for (int i = 0; i < 200; i++) {
		char *name = any_name(f);
		const char *asked = fuzz_below(f, 20) ? name : NULL;
		int version = fuzz_below(f, 3) ? (int)(1000 + fuzz_below(f, 1300) * 10) : (int)fuzz_number(f);
		cuuint64_t flags = fuzz_below(f, 8) ? fuzz_below(f, 3) : fuzz_number(f);
		CUdriverProcAddressQueryResult status = 77, plain_status = 77;
		bool with_status = fuzz_below(f, 4) != 0, with_function = fuzz_below(f, 20) != 0;
		void *found = &status, *plain = &status;

		CHECK_IS(cuGetProcAddress_v2(asked, with_function ? &found : NULL, version, flags,
					     with_status ? &status : NULL),
			 real_v2(asked, with_function ? &plain : NULL, version, flags,
				 with_status ? &plain_status : NULL));
		CHECK_IS(status, plain_status);
		check_given(found, plain);
		found = plain = &status;
		CHECK_IS(cuGetProcAddress(asked, with_function ? &found : NULL, version, flags),
			 real_v1(asked, with_function ? &plain : NULL, version, flags));
		check_given(found, plain);
		if (failures != 0)
			fprintf(stderr, "%.100s, version %d, flags %llu\n", asked != NULL ? asked : "NULL",
				version, (unsigned long long)flags);
		free(name);
	}
}

static void private_tables(struct fuzz *f)
{
	typedef nvmlReturn_t get_table(const void **, const void *);
	get_table *real = (get_table *)vgpu_libc()->dlsym(nvml, "nvmlInternalGetExportTable");

	for (int i = 0; i < 50; i++) {
		unsigned char *uuid = malloc(16);
		const void *table = NULL, *plain = NULL;
		bool with_table = fuzz_below(f, 8) != 0, with_uuid = fuzz_below(f, 8) != 0;

		fuzz_bytes(f, uuid, 16);
		CHECK_IS(nvmlInternalGetExportTable(with_table ? &table : NULL, with_uuid ? uuid : NULL),
			 real(with_table ? &plain : NULL, with_uuid ? uuid : NULL));
		CHECK(table == plain);
		free(uuid);
	}
}

static void any_lookup(struct fuzz *f)
{
	switch (fuzz_below(f, 3)) {
	case 0: names_by_handle(f); break;
	case 1: names_by_the_driver(f); break;
	default: private_tables(f);
	}
}

static void lookups_answer_any_name(void)
{
	struct step step = step_make(1, 0, 100, 100);

	(void)step;
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	libc = dlopen("libc.so.6", RTLD_NOW);
	CHECK(cuda != NULL && nvml != NULL && libc != NULL && vgpu_libc() != NULL);
	if (failures == 0)
		fuzz_rounds(300, any_lookup);
}

int main(void)
{
	gpus(0);
	CASE(lookups_answer_any_name);
	return summary();
}
