/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/table.h"
#include "tuning.h"

#include <stddef.h>
#include <sys/mman.h>

static uint64_t slot_of_key(const struct vgpu_table *table, uint64_t key)
{
	/* Device addresses differ in their middle bits; the product spreads them to the top ones. */
	uint64_t h = key * 0x9e3779b97f4a7c15ull;

	return (h ^ h >> 32) & (table->capacity - 1);
}

struct vgpu_entry *vgpu_table_find(const struct vgpu_table *table, uint64_t key)
{
	if (table->capacity == 0 || key == 0)
		return NULL;
	for (uint64_t i = slot_of_key(table, key);; i = (i + 1) & (table->capacity - 1)) {
		if (table->entry[i].key == key)
			return &table->entry[i];
		if (table->entry[i].key == 0)
			return NULL;
	}
}

static void insert(struct vgpu_table *table, const struct vgpu_entry *entry)
{
	uint64_t i = slot_of_key(table, entry->key);

	while (table->entry[i].key != 0)
		i = (i + 1) & (table->capacity - 1);
	table->entry[i] = *entry;
	__atomic_store_n(&table->used, table->used + 1, __ATOMIC_RELAXED);
}

/* If there is memory for it. */
static void grow(struct vgpu_table *table)
{
	struct vgpu_table bigger = {.capacity = table->capacity ? table->capacity * 2
								: VGPU_TABLE_FIRST_ENTRIES};
	size_t size = bigger.capacity * sizeof(*bigger.entry);

	bigger.entry = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bigger.entry == MAP_FAILED)
		return;
	madvise(bigger.entry, size, MADV_DONTFORK);
	for (uint64_t i = 0; i < table->capacity; i++) {
		if (table->entry[i].key != 0)
			insert(&bigger, &table->entry[i]);
	}
	if (table->capacity != 0)
		munmap(table->entry, table->capacity * sizeof(*table->entry));
	/* used stays what it is, for who looks at it without a lock. */
	table->entry = bigger.entry;
	table->capacity = bigger.capacity;
}

bool vgpu_table_put(struct vgpu_table *table, const struct vgpu_entry *entry)
{
	struct vgpu_entry *old = vgpu_table_find(table, entry->key);

	if (old != NULL) {
		*old = *entry;
		return true;
	}
	if (entry->key == 0)
		return false;
	if ((table->used + 1) * 4 > table->capacity * 3)
		grow(table);
	/* One place always stays empty, so that a search ends. */
	if (table->used + 1 >= table->capacity)
		return false;
	insert(table, entry);
	return true;
}

bool vgpu_table_take(struct vgpu_table *table, uint64_t key, struct vgpu_entry *out)
{
	struct vgpu_entry *found = vgpu_table_find(table, key);
	uint64_t mask = table->capacity - 1;
	uint64_t hole;

	if (found == NULL)
		return false;
	*out = *found;
	hole = (uint64_t)(found - table->entry);
	/* Close the gap instead of leaving a marker: a table that lives for days must not fill with them. */
	for (uint64_t i = (hole + 1) & mask; table->entry[i].key != 0; i = (i + 1) & mask) {
		uint64_t home = slot_of_key(table, table->entry[i].key);

		if (((i - home) & mask) >= ((i - hole) & mask)) {
			table->entry[hole] = table->entry[i];
			hole = i;
		}
	}
	table->entry[hole].key = 0;
	__atomic_store_n(&table->used, table->used - 1, __ATOMIC_RELAXED);
	return true;
}
