/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A table that grows, and one that cannot. */
#include "harness.h"

#include "base/table.h"

#include <sys/mman.h>

static bool no_memory;

/* The linker leads the table's calls here (--wrap). */
void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return no_memory ? MAP_FAILED : __real_mmap(address, length, protection, flags, fd, offset);
}

static struct vgpu_entry entry_of(uint64_t i)
{
	return (struct vgpu_entry){.key = i * 0x200000, .owner = i, .bytes = 7 * i, .count = 1};
}

static void holds(const struct vgpu_table *table, uint64_t from, uint64_t to)
{
	CHECK_IS(table->used, to - from);
	for (uint64_t i = from; i < to; i++) {
		const struct vgpu_entry *found = vgpu_table_find(table, entry_of(i).key);

		CHECK(found != NULL && found->owner == i && found->bytes == 7 * i);
	}
	CHECK(vgpu_table_find(table, entry_of(to).key) == NULL);
}

static void a_table_grows_with_what_it_holds(void)
{
	struct vgpu_table table = {0};
	struct vgpu_entry out;

	CHECK(vgpu_table_find(&table, 1) == NULL);
	CHECK(!vgpu_table_take(&table, 1, &out));
	CHECK(!vgpu_table_put(&table, &(struct vgpu_entry){0}));
	for (uint64_t i = 1; i < 5000; i++) {
		CHECK(vgpu_table_put(&table, &(struct vgpu_entry){.key = entry_of(i).key}));
		CHECK(vgpu_table_put(
			&table, &(struct vgpu_entry){.key = entry_of(i).key, .owner = i, .bytes = 7 * i}));
		CHECK(table.used * 4 <= table.capacity * 3);
		/* Not before it has to. */
		CHECK(table.capacity == 128 || table.used * 8 > table.capacity * 3);
	}
	CHECK(table.capacity <= 8192);
	holds(&table, 1, 5000);
	for (uint64_t i = 1; i < 4000; i++) {
		CHECK(vgpu_table_take(&table, entry_of(i).key, &out));
		CHECK_IS(out.owner, i);
		CHECK(!vgpu_table_take(&table, entry_of(i).key, &out));
	}
	holds(&table, 4000, 5000);
}

/* One place stays empty, so that a search ends. */
static void a_table_that_cannot_grow_takes_what_it_has_room_for(void)
{
	struct vgpu_table table = {0};
	struct vgpu_entry first = entry_of(1);
	uint64_t capacity;

	no_memory = true;
	CHECK(!vgpu_table_put(&table, &first));
	CHECK_IS(table.used, 0);
	no_memory = false;
	CHECK(vgpu_table_put(&table, &first));
	no_memory = true;
	capacity = table.capacity;
	for (uint64_t i = 2; i < capacity; i++) {
		struct vgpu_entry entry = entry_of(i);

		CHECK(vgpu_table_put(&table, &entry));
	}
	first = entry_of(capacity);
	CHECK(!vgpu_table_put(&table, &first));
	CHECK_IS(table.capacity, capacity);
	if (failures != 0)
		return;
	holds(&table, 1, capacity);
	no_memory = false;
	CHECK(vgpu_table_put(&table, &first));
	holds(&table, 1, capacity + 1);
}

int main(void)
{
	gpus(0);
	CASE(a_table_grows_with_what_it_holds);
	CASE(a_table_that_cannot_grow_takes_what_it_has_room_for);
	return summary();
}
