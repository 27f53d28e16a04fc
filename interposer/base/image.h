/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The images that the dynamic linker has loaded into this process: what they define, read from their own
 * tables, without asking the dynamic linker, which would answer with our names. */
#ifndef VGPU_BASE_IMAGE_H
#define VGPU_BASE_IMAGE_H

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As the image says it, whatever is there. */
struct vgpu_relocations {
	const ElfW(Rela) *first;
	size_t bytes;
};

struct vgpu_image {
	const ElfW(Sym) *symbols;
	const char *strings;
	const uint32_t *gnu_hash; /* either may be NULL, not both */
	const uint32_t *hash;
	const ElfW(Half) *versions;
	ElfW(Addr) base;
	struct vgpu_relocations relocations;
	struct vgpu_relocations jumps; /* of functions that are called */
};

bool vgpu_image_of_map(const struct link_map *map, struct vgpu_image *image);

/* The symbol's default version, else any; NULL when the image does not define it. */
void *vgpu_image_find(const struct vgpu_image *image, const char *name);

#endif
