/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/image.h"

#include "base/text.h"

#include <stddef.h>

#define HIDDEN_VERSION 0x8000u

static uint32_t gnu_hash(const char *name)
{
	uint32_t h = 5381;

	for (; *name != '\0'; name++)
		h = h * 33 + (unsigned char)*name;
	return h;
}

/* Of the gABI, for images that have no other table. */
static uint32_t elf_hash(const char *name)
{
	uint32_t h = 0;

	for (; *name != '\0'; name++) {
		h = (h << 4) + (unsigned char)*name;
		h ^= (h & 0xf0000000u) >> 24;
		h &= 0x0fffffffu;
	}
	return h;
}

/* Whether the symbol is what is looked for; if so, *found is it, and this is true when there can be no better
 * one. */
static bool take_symbol(const struct vgpu_image *image, uint32_t i, const char *name, void **found)
{
	const ElfW(Sym) *symbol = &image->symbols[i];

	if (symbol->st_shndx == SHN_UNDEF || !vgpu_same_text(image->strings + symbol->st_name, name))
		return false;
	*found = (void *)(image->base + symbol->st_value);
	return image->versions == NULL || !(image->versions[i] & HIDDEN_VERSION);
}

static void *find_by_gnu_hash(const struct vgpu_image *image, const char *name)
{
	uint32_t buckets = image->gnu_hash[0];
	uint32_t first = image->gnu_hash[1];
	uint32_t bloom = image->gnu_hash[2];
	const uint32_t *bucket = &image->gnu_hash[4] + bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
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

		if (((other | 1) == (h | 1) && take_symbol(image, i, name, &found)) || (other & 1))
			return found;
	}
}

static void *find_by_hash(const struct vgpu_image *image, const char *name)
{
	uint32_t buckets = image->hash[0];
	const uint32_t *bucket = &image->hash[2];
	const uint32_t *chain = bucket + buckets;
	void *found = NULL;

	if (buckets == 0)
		return NULL;
	for (uint32_t i = bucket[elf_hash(name) % buckets]; i != STN_UNDEF; i = chain[i]) {
		if (take_symbol(image, i, name, &found))
			break;
	}
	return found;
}

void *vgpu_image_find(const struct vgpu_image *image, const char *name)
{
	return image->gnu_hash != NULL ? find_by_gnu_hash(image, name) : find_by_hash(image, name);
}

/* The dynamic linker turns these into addresses where it can write to the section. */
static const void *address_of(ElfW(Addr) base, ElfW(Addr) value)
{
	return (const void *)(value < base ? base + value : value);
}

static bool read_dynamic(ElfW(Addr) base, const ElfW(Dyn) *dynamic, struct vgpu_image *image)
{
	*image = (struct vgpu_image){.base = base};
	for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
		const void *address = address_of(base, dynamic->d_un.d_ptr);

		if (dynamic->d_tag == DT_SYMTAB)
			image->symbols = address;
		else if (dynamic->d_tag == DT_STRTAB)
			image->strings = address;
		else if (dynamic->d_tag == DT_GNU_HASH)
			image->gnu_hash = address;
		else if (dynamic->d_tag == DT_HASH)
			image->hash = address;
		else if (dynamic->d_tag == DT_VERSYM)
			image->versions = address;
		else if (dynamic->d_tag == DT_RELA)
			image->relocations.first = address;
		else if (dynamic->d_tag == DT_RELASZ)
			image->relocations.bytes = dynamic->d_un.d_val;
		else if (dynamic->d_tag == DT_JMPREL)
			image->jumps.first = address;
		else if (dynamic->d_tag == DT_PLTRELSZ)
			image->jumps.bytes = dynamic->d_un.d_val;
	}
	return image->symbols != NULL && image->strings != NULL &&
	       (image->gnu_hash != NULL || image->hash != NULL);
}

bool vgpu_image_of_map(const struct link_map *map, struct vgpu_image *image)
{
	return read_dynamic(map->l_addr, map->l_ld, image);
}
