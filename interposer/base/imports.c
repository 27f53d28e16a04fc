/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/imports.h"

#include "base/image.h"
#include "tuning.h"

#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __aarch64__
#define IN_ITS_PLACE R_AARCH64_JUMP_SLOT
#define BY_ITS_ADDRESS R_AARCH64_GLOB_DAT
#define IN_DATA R_AARCH64_ABS64
#else
#define IN_ITS_PLACE R_X86_64_JUMP_SLOT
#define BY_ITS_ADDRESS R_X86_64_GLOB_DAT
#define IN_DATA R_X86_64_64
#endif

/* Whether all of it lies in one segment that has these rights. */
static bool lies_in(const struct vgpu_imports *imports, const void *address, size_t bytes, uint32_t rights)
{
	for (uint32_t i = 0; i < imports->segment_count; i++) {
		const ElfW(Phdr) *segment = &imports->segments[i];
		ElfW(Addr) at = (ElfW(Addr))address - imports->base - segment->p_vaddr;

		if (segment->p_type == PT_LOAD && (segment->p_flags & rights) == rights &&
		    at < segment->p_memsz && bytes <= segment->p_memsz - at)
			return true;
	}
	return false;
}

/* Of entries that begin where they may. */
static bool is_table(const struct vgpu_imports *imports, const void *address, size_t bytes)
{
	return (ElfW(Addr))address % sizeof(ElfW(Addr)) == 0 && lies_in(imports, address, bytes, PF_R);
}

static bool read_header(const ElfW(Ehdr) *header, struct vgpu_imports *imports)
{
	if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
	    header->e_phentsize != sizeof(ElfW(Phdr)) || header->e_phoff % sizeof(ElfW(Addr)) != 0 ||
	    header->e_phoff > VGPU_PAGE_BYTES ||
	    header->e_phnum > (VGPU_PAGE_BYTES - header->e_phoff) / sizeof(ElfW(Phdr)))
		return false;
	imports->segments = (const ElfW(Phdr) *)((const char *)header + header->e_phoff);
	imports->segment_count = header->e_phnum;
	return lies_in(imports, header, sizeof(*header), PF_R);
}

static bool is_symbol_of(const struct vgpu_imports *imports, const struct vgpu_image *image, uint32_t index,
		  const char *name)
{
	const ElfW(Sym) *symbol = &image->symbols[index];
	size_t bytes = strlen(name) + 1;

	return is_table(imports, symbol, sizeof(*symbol)) && symbol->st_shndx == SHN_UNDEF &&
	       lies_in(imports, image->strings + symbol->st_name, bytes, PF_R) &&
	       memcmp(image->strings + symbol->st_name, name, bytes) == 0;
}

static void add_import(struct vgpu_imports *imports, ElfW(Addr) at)
{
	void **place = (void **)at;

	for (uint32_t i = 0; i < imports->count; i++) {
		if (imports->place[i] == place)
			return;
	}
	if (at % sizeof(*place) != 0 || imports->count == VGPU_IMPORT_PLACES ||
	    !lies_in(imports, place, sizeof(*place), PF_R | PF_W))
		imports->all = false;
	else
		imports->place[imports->count++] = place;
}

static void read_table(struct vgpu_imports *imports, const struct vgpu_image *image,
		       const struct vgpu_relocations *table, const char *name)
{
	if (table->bytes == 0)
		return;
	if (!is_table(imports, table->first, table->bytes)) {
		imports->all = false;
		return;
	}
	for (size_t i = 0; i < table->bytes / sizeof(*table->first); i++) {
		const ElfW(Rela) *one = &table->first[i];
		uint64_t type = ELF64_R_TYPE(one->r_info);

		if ((type == IN_ITS_PLACE || type == BY_ITS_ADDRESS ||
		     (type == IN_DATA && one->r_addend == 0)) &&
		    is_symbol_of(imports, image, (uint32_t)ELF64_R_SYM(one->r_info), name))
			add_import(imports, imports->base + one->r_offset);
	}
}

bool vgpu_imports_find(const struct link_map *map, const void *header, const char *name,
		       struct vgpu_imports *imports)
{
	struct vgpu_image image;

	*imports = (struct vgpu_imports){.base = map->l_addr, .all = true};
	if (!read_header(header, imports) || !vgpu_image_of_map(map, &image))
		return false;
	read_table(imports, &image, &image.relocations, name);
	read_table(imports, &image, &image.jumps, name);
	return true;
}

bool vgpu_imports_has(const struct vgpu_imports *imports, const void *address)
{
	return lies_in(imports, address, 1, 0);
}

/* Whether the dynamic linker has made the page read-only after it wrote all places: it does so by whole
 * pages. */
static bool is_read_only(const struct vgpu_imports *imports, ElfW(Addr) at, ElfW(Addr) page)
{
	for (uint32_t i = 0; i < imports->segment_count; i++) {
		const ElfW(Phdr) *segment = &imports->segments[i];
		ElfW(Addr) from = imports->base + segment->p_vaddr;

		if (segment->p_type == PT_GNU_RELRO && at >= from / page * page &&
		    at < (from + segment->p_memsz) / page * page)
			return true;
	}
	return false;
}

static bool protect(ElfW(Addr) at, ElfW(Addr) page, int rights)
{
	return syscall(SYS_mprotect, at / page * page, page, rights) == 0;
}

bool vgpu_imports_set(const struct vgpu_imports *imports, uint32_t index, void *function)
{
	ElfW(Addr) page = getauxval(AT_PAGESZ);
	ElfW(Addr) at = (ElfW(Addr))imports->place[index];
	int runs = lies_in(imports, imports->place[index], 1, PF_X) ? PROT_EXEC : 0;

	if (page == 0 || !protect(at, page, PROT_READ | PROT_WRITE | runs))
		return false;
	__atomic_store_n(imports->place[index], function, __ATOMIC_RELEASE);
	if (is_read_only(imports, at, page))
		protect(at, page, PROT_READ | runs);
	return true;
}
