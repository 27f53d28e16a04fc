/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Tables of an image with anything in them: nothing is read or found outside of what is mapped of it. */
#include "fuzz.h"
#include "harness.h"

#include "base/imports.h"

#include <dlfcn.h>
#include <sys/mman.h>

static const struct link_map *real;
static const char *image; /* as it is mapped */
static const ElfW(Phdr) *segment;
static size_t bytes, whole;

/* A copy at the end of what may be read. */
static char *copy_of(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *all = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (all == MAP_FAILED || mprotect(all + page, whole, PROT_READ | PROT_WRITE) != 0)
		return NULL;
	for (int i = 0; i < ((const ElfW(Ehdr) *)image)->e_phnum; i++)
		if (segment[i].p_type == PT_LOAD)
			memcpy(all + page + segment[i].p_vaddr, image + segment[i].p_vaddr,
			       segment[i].p_memsz);
	return all + page;
}

static void change(struct fuzz *f, char *copy, ElfW(Dyn) *dynamic)
{
	const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)copy;
	size_t heads = header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr));
	uint32_t changes = fuzz_below(f, 6);

	for (uint32_t i = 0; i < changes; i++) {
		ElfW(Dyn) *one = &dynamic[fuzz_below(f, 20)];

		/* Heads, and which tables there are, the dynamic linker itself has gone by. */
		if (fuzz_below(f, 2) == 0 && (one->d_tag == DT_RELA || one->d_tag == DT_JMPREL))
			one->d_un.d_ptr =
				fuzz_below(f, 2) == 0 ? fuzz_number(f) : fuzz_below(f, (uint32_t)whole);
		else if (one->d_tag == DT_RELASZ || one->d_tag == DT_PLTRELSZ)
			one->d_un.d_val = fuzz_number(f);
		else
			copy[heads + fuzz_below(f, (uint32_t)((const char *)dynamic - copy - heads))] =
				(char)fuzz_next(f);
	}
}

static void any_tables(struct fuzz *f)
{
	char *copy = copy_of();
	struct vgpu_imports imports;
	struct link_map map = {.l_addr = (ElfW(Addr))copy};

	CHECK(copy != NULL);
	if (copy == NULL)
		return;
	map.l_ld = (ElfW(Dyn) *)(copy + ((const char *)real->l_ld - image));
	/* As they stand in the file: the dynamic linker has made addresses of them. */
	for (ElfW(Dyn) *one = map.l_ld; one->d_tag != DT_NULL; one++)
		if (one->d_un.d_ptr >= (ElfW(Addr))image && one->d_un.d_ptr < (ElfW(Addr))image + bytes)
			one->d_un.d_ptr -= (ElfW(Addr))image;
	change(f, copy, map.l_ld);
	if (vgpu_imports_find(&map, copy, "ioctl", &imports)) {
		CHECK(imports.count <= VGPU_IMPORT_PLACES);
		for (uint32_t i = 0; i < imports.count; i++)
			CHECK((char *)imports.place[i] >= copy &&
			      (char *)(imports.place[i] + 1) <= copy + bytes);
	}
	munmap(copy - sysconf(_SC_PAGESIZE), whole + 2 * (size_t)sysconf(_SC_PAGESIZE));
}

static void tables_of_anything(void)
{
	fuzz_rounds(3000, any_tables);
}

int main(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char path[4096];
	void *handle;
	Dl_info info;

	gpus(0);
	snprintf(path, sizeof(path), "%s/../test-interposer/helpers/calling_lazy.so",
		 getenv("VGPU_TEST_SIM"));
	handle = dlopen(path, RTLD_LAZY);
	if (handle == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &real) != 0 ||
	    dladdr(dlsym(handle, "calling"), &info) == 0)
		return 1;
	image = info.dli_fbase;
	segment = (const ElfW(Phdr) *)(image + ((const ElfW(Ehdr) *)image)->e_phoff);
	for (int i = 0; i < ((const ElfW(Ehdr) *)image)->e_phnum; i++)
		if (segment[i].p_type == PT_LOAD)
			bytes = segment[i].p_vaddr + segment[i].p_memsz;
	whole = (bytes + page - 1) / page * page;
	CASE(tables_of_anything);
	return summary();
}
