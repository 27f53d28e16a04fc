/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A hash table from a 64-bit key to a small value, in memory of its own: malloc may be the
 * program's, and a forked child must not inherit entries of the parent's GPU context.
 * It does no locking. A table of zeros is an empty table. */
#ifndef VGPU_BASE_TABLE_H
#define VGPU_BASE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_entry {
	uint64_t key; /* never 0 */
	uint64_t bytes;
	uint64_t owner;
	uint32_t device; /* index in vgpu_limits.device */
	uint32_t count;
};

struct vgpu_table {
	struct vgpu_entry *entry;
	uint64_t capacity; /* 0 or a power of two */
	uint64_t used;
};

/* The entry of the key, or NULL. Valid until the table changes. */
struct vgpu_entry *vgpu_table_find(const struct vgpu_table *table, uint64_t key);
/* Adds the entry, or replaces the one of its key. False when there is no memory. */
bool vgpu_table_put(struct vgpu_table *table, const struct vgpu_entry *entry);
/* Removes the entry of the key into *out. False when there is none. */
bool vgpu_table_take(struct vgpu_table *table, uint64_t key, struct vgpu_entry *out);

#endif
