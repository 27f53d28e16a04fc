/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "libc.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HIDDEN_VERSION 0x8000u

struct image {
	const ElfW(Sym) *symbols;
	const char *strings;
	const uint32_t *hash;
	const ElfW(Half) *versions;
	ElfW(Addr) base;
};

static uint32_t gnu_hash(const char *name)
{
	uint32_t h = 5381;

	for (; *name != '\0'; name++)
		h = h * 33 + (unsigned char)*name;
	return h;
}

/* The symbol's default version, else any. */
static void *find(const struct image *image, const char *name)
{
	uint32_t buckets = image->hash[0];
	uint32_t first = image->hash[1];
	uint32_t bloom = image->hash[2];
	const uint32_t *bucket = &image->hash[4] + bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	const uint32_t *chain = bucket + buckets;
	uint32_t h = gnu_hash(name);
	void *found = NULL;
	uint32_t i;

	if (buckets == 0)
		return NULL;
	i = bucket[h % buckets];
	if (i < first)
		return NULL;
	for (;; i++) {
		uint32_t other = chain[i - first];
		const ElfW(Sym) *symbol = &image->symbols[i];

		if ((other | 1) == (h | 1) && symbol->st_shndx != SHN_UNDEF &&
		    strcmp(image->strings + symbol->st_name, name) == 0) {
			found = (void *)(image->base + symbol->st_value);
			if (image->versions == NULL || !(image->versions[i] & HIDDEN_VERSION))
				return found;
		}
		if (other & 1)
			return found;
	}
}

/* The dynamic linker turns these into addresses where it can write to the section. */
static const void *address_of(const struct dl_phdr_info *info, ElfW(Addr) value)
{
	return (const void *)(value < info->dlpi_addr ? info->dlpi_addr + value : value);
}

static bool read_image(const struct dl_phdr_info *info, struct image *image)
{
	const ElfW(Dyn) *dynamic = NULL;

	*image = (struct image){.base = info->dlpi_addr};
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	}
	for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
		const void *address = address_of(info, dynamic->d_un.d_ptr);

		if (dynamic->d_tag == DT_SYMTAB)
			image->symbols = address;
		else if (dynamic->d_tag == DT_STRTAB)
			image->strings = address;
		else if (dynamic->d_tag == DT_GNU_HASH)
			image->hash = address;
		else if (dynamic->d_tag == DT_VERSYM)
			image->versions = address;
	}
	return image->symbols != NULL && image->strings != NULL && image->hash != NULL;
}

static int look(struct dl_phdr_info *info, size_t size, void *out)
{
	struct vgpu_libc *libc = out;
	const char *slash = info->dlpi_name == NULL ? NULL : strrchr(info->dlpi_name, '/');
	const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
	struct image image;

	(void)size;
	if (name == NULL || (strcmp(name, "libc.so.6") != 0 && strcmp(name, "libdl.so.2") != 0) ||
	    !read_image(info, &image))
		return 0;
	libc->dlsym = (__typeof__(libc->dlsym))find(&image, "dlsym");
	libc->dlvsym = (__typeof__(libc->dlvsym))find(&image, "dlvsym");
	libc->dlopen = (__typeof__(libc->dlopen))find(&image, "dlopen");
	libc->dladdr = (__typeof__(libc->dladdr))find(&image, "dladdr");
	return libc->dlsym != NULL && libc->dlvsym != NULL && libc->dlopen != NULL && libc->dladdr != NULL;
}

const struct vgpu_libc *vgpu_libc(void)
{
	static struct vgpu_libc found;
	static uint32_t ready;
	struct vgpu_libc libc = {0};

	if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE))
		return &found;
	if (dl_iterate_phdr(look, &libc) == 0)
		return NULL;
	/* Threads that come here together write the same values. */
	__atomic_store_n(&found.dlsym, libc.dlsym, __ATOMIC_RELAXED);
	__atomic_store_n(&found.dlvsym, libc.dlvsym, __ATOMIC_RELAXED);
	__atomic_store_n(&found.dlopen, libc.dlopen, __ATOMIC_RELAXED);
	__atomic_store_n(&found.dladdr, libc.dladdr, __ATOMIC_RELAXED);
	__atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
	return &found;
}
