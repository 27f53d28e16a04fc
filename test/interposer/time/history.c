/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What marks tell of the last seconds, with times of the test's own. */
#include "harness.h"
#include "time/history.h"

#define MS 1000000ull
#define S (1000 * MS)

static struct vgpu_history marks;
static uint64_t busy_ns, until_ns;

/* As vgpu_time_used counts it. */
static void used(uint64_t start_ns, uint64_t for_ns)
{
	vgpu_history_note(&marks, start_ns, until_ns, busy_ns);
	busy_ns += for_ns;
	until_ns = start_ns + for_ns;
}

/* In pieces of so many ms with pauses between. */
static void keep_used(uint64_t from_ns, uint64_t to_ns, uint64_t piece_ms, uint64_t pause_ms)
{
	for (uint64_t at = from_ns; at < to_ns; at += (piece_ms + pause_ms) * MS)
		used(at, piece_ms * MS);
}

static uint32_t told(uint64_t from_ns, uint64_t now_ns)
{
	return vgpu_history_used(&marks, from_ns, now_ns, until_ns, busy_ns);
}

#define CHECK_ABOUT(got, want)                                                                         \
	do {                                                                                           \
		uint32_t got_ = (got);                                                                 \
		if (got_ + 5 < (want) || got_ > (want) + 5)                                            \
			fprintf(stderr, "%s:%d: %s is %u, not about %u\n", __FILE__, __LINE__, #got, got_, want), failures++; \
	} while (0)

static void nothing_was_ever_used(void)
{
	CHECK_IS(told(0, 10 * S), 0);
	CHECK_IS(told(8 * S, 10 * S), 0);
}

static void an_even_load_is_told_over_any_window(void)
{
	keep_used(100 * S, 110 * S, 1, 3);
	CHECK_ABOUT(told(109 * S, 110 * S), 250);
	CHECK_ABOUT(told(108 * S, 110 * S), 250);
	CHECK_ABOUT(told(107 * S + 130 * MS, 110 * S), 250);
	/* More than is remembered. */
	CHECK_ABOUT(told(50 * S, 110 * S), 250);
}

static void long_pieces_are_told_too(void)
{
	keep_used(100 * S, 110 * S, 400, 600);
	CHECK_ABOUT(told(108 * S, 110 * S), 400);
	CHECK_ABOUT(told(100 * S, 110 * S), 400);
}

static void a_load_that_ended_fades(void)
{
	keep_used(100 * S, 105 * S, 1, 1);
	CHECK_ABOUT(told(103 * S, 105 * S), 500);
	CHECK_ABOUT(told(104 * S, 106 * S), 250);
	CHECK_IS(told(105 * S + 10 * MS, 107 * S), 0);
	CHECK_IS(told(205 * S, 207 * S), 0);
}

static void a_load_that_began_again_is_told_from_then_on(void)
{
	keep_used(100 * S, 105 * S + 50 * MS, 1, 1);
	keep_used(109 * S, 110 * S, 1, 0);
	CHECK_ABOUT(told(108 * S, 110 * S), 500);
	CHECK_ABOUT(told(109 * S, 110 * S), 1000);
	CHECK_ABOUT(told(107 * S, 110 * S), 333);
	CHECK_ABOUT(told(104 * S + 50 * MS, 110 * S), 252);
}

static void the_first_load_counts_from_its_beginning(void)
{
	keep_used(100 * S, 101 * S, 1, 0);
	CHECK_ABOUT(told(99 * S, 101 * S), 500);
}

static void garbage_is_a_number_all_the_same(void)
{
	unsigned seed = 1;

	for (int round = 0; round < 20000; round++) {
		for (size_t i = 0; i < sizeof(marks) / 4; i++)
			((uint32_t *)&marks)[i] = (uint32_t)rand_r(&seed) >> (rand_r(&seed) % 32);
		until_ns = (uint64_t)rand_r(&seed) << (rand_r(&seed) % 40);
		busy_ns = (uint64_t)rand_r(&seed) << (rand_r(&seed) % 40);
		for (int i = 0; i < 4; i++) {
			uint64_t now_ns = 5 * S + (uint64_t)rand_r(&seed) * 4;

			CHECK(told(now_ns - 2 * S, now_ns) <= 1000);
		}
	}
}

int main(void)
{
	gpus(0);
	CASE(nothing_was_ever_used);
	CASE(an_even_load_is_told_over_any_window);
	CASE(long_pieces_are_told_too);
	CASE(a_load_that_ended_fades);
	CASE(a_load_that_began_again_is_told_from_then_on);
	CASE(the_first_load_counts_from_its_beginning);
	CASE(garbage_is_a_number_all_the_same);
	return summary();
}
