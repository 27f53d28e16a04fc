/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The page on which a load writes what it has done; loads.py has the same. */
#ifndef VGPU_TEST_PAGE_H
#define VGPU_TEST_PAGE_H

#include <stdint.h>

#define PAGE_ENTRIES (1u << 17)

struct page {
	uint64_t count; /* pieces done, ever */
	uint64_t idle;	/* 1: stopped, and nothing is under way */
	uint64_t reserved[6];
	struct {
		uint64_t end_ns, took_ns; /* monotonic; took: since it was submitted, or was due */
	} piece[PAGE_ENTRIES];
};

/* NULL when the file is not there. */
struct page *page_map(const char *path);

static inline void page_add(struct page *page, uint64_t end_ns, uint64_t took_ns)
{
	uint64_t at = page->count % PAGE_ENTRIES;

	page->piece[at].end_ns = end_ns;
	page->piece[at].took_ns = took_ns;
	__atomic_store_n(&page->count, page->count + 1, __ATOMIC_RELEASE);
}

/* The share of a limits page's first GPU; 0: no cap. */
unsigned int pretended_percent(const char *path);

#endif
