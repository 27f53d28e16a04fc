/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "time/cost.h"

#include "base/atomics.h"

#include <stddef.h>

#define OFTEN 4u	     /* the first launches are all timed, */
#define KNOWN 16u	     /* until then one in SELDOM, or once in WORTH_NS of the GPU's time, */
#define SELDOM 64u
#define WORTH_NS 2000000u
#define LATER 4u	     /* and then so many times more seldom, */
#define ROUGHLY 16u	     /* or so many, where it matters less */
#define OUTLIER 8u	     /* times the average: something came between, unless it comes again */
#define PUT_OFF 32u	     /* launches beside others before one is timed after all, */
#define IN_VAIN 4u	     /* half as many each time that it was in vain, so many times at most; */
#define REST 8u		     /* each of them makes it later by one part in so many before the next one */
#define BESIDE 16u	     /* times in vain before one counts that took longer */
#define LONGEST_NS 4000000000u
#define UNSTEADY 4u   /* times what the brief ones take: then there are others besides, */
#define FADES 128u    /* until none of them was brief for so long */
#define PLACES 8u /* where a key may be */
#define SAVED_NS 240u /* by a launch behind another one, as long as nobody has seen it (H200), */
#define SAVED_MOST_NS 1500u
#define SAVED_BELOW_NS 50000u /* as it is lost in what longer ones take now more and now less, */
#define SAVED_LAUNCHES 16u    /* and, of fewer, in what it takes to time them */

uint64_t vgpu_cost_key(uint64_t what, uint64_t shape)
{
	uint64_t h = (what ^ shape * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;

	h ^= h >> 32;
	return h == 0 ? 1 : h;
}

/* The places of a key, each in another order: mostly the first one has it. */
static struct vgpu_cost *place(struct vgpu_cost table[VGPU_COSTS], uint64_t key, uint32_t i)
{
	uint64_t set = key % (VGPU_COSTS / PLACES), first = key / (VGPU_COSTS / PLACES);

	return &table[set * PLACES + (first + i) % PLACES];
}

static struct vgpu_cost *find(struct vgpu_cost table[VGPU_COSTS], uint64_t key)
{
	for (uint32_t i = 0; i < PLACES; i++) {
		struct vgpu_cost *cost = place(table, key, i);

		if (GET(cost->key) == key)
			return cost;
	}
	return NULL;
}

/* Threads may meet here. Then a sample is lost, or counts for a kernel that had the place before:
 * an average that is wrong for some launches, which the meter's bounds hold. */
struct vgpu_cost *vgpu_cost_of(struct vgpu_cost table[VGPU_COSTS], uint64_t key)
{
	struct vgpu_cost *cost = find(table, key);

	if (cost != NULL)
		return cost;
	/* An empty place, or that of which least is known. */
	cost = place(table, key, 0);
	for (uint32_t i = 1; i < PLACES && GET(cost->key) != 0; i++) {
		struct vgpu_cost *other = place(table, key, i);

		if (GET(other->key) == 0 || GET(other->samples) < GET(cost->samples))
			cost = other;
	}
	SET(cost->average_ns, 0);
	SET(cost->samples, 0);
	SET(cost->outliers, 0);
	SET(cost->put_off, 0);
	SET(cost->in_vain, 0);
	SET(cost->brief_ns, 0);
	SET(cost->since_sample, 0);
	SET(cost->key, key);
	return cost;
}

/* How many times more seldom than at first. */
static uint32_t rarely(const struct vgpu_cost *cost, bool roughly)
{
	return GET(cost->samples) < KNOWN ? 1 : roughly ? ROUGHLY : LATER;
}

/* Not the very first: it may load the kernel, which takes long and must not be waited for. */
static bool is_due(const struct vgpu_cost *cost, int32_t since, bool roughly)
{
	uint64_t average = GET(cost->average_ns);
	uint32_t samples = GET(cost->samples), times = rarely(cost, roughly);

	if (since <= 0 || (average == 0 && samples == 0 && since == 1))
		return false;
	return samples < OFTEN || since >= (int32_t)(SELDOM * times) ||
	       (uint64_t)since * average >= WORTH_NS * times;
}

uint64_t vgpu_cost_unseen_ns(const struct vgpu_cost *cost)
{
	uint64_t average = GET(cost->average_ns), brief = GET(cost->brief_ns);

	return brief != 0 && average / UNSTEADY > brief ? brief : average;
}

/* What a timed launch took says of those that are brief. */
static uint64_t brief_after(uint64_t brief, uint64_t average, uint64_t took_ns)
{
	if (brief == 0 || took_ns < brief / UNSTEADY)
		return took_ns;
	if (took_ns < VGPU_BRIEF_NS)
		return (brief * 7 + took_ns) / 8;
	return took_ns / UNSTEADY <= brief || average <= brief ? average : brief + (average - brief) / FADES;
}

bool vgpu_cost_due(struct vgpu_cost *cost, bool roughly)
{
	int32_t since = GET(cost->since_sample) + 1;
	bool due = is_due(cost, since, roughly);

	SET(cost->since_sample, due ? 1 : since);
	return due;
}

uint64_t vgpu_cost_leased(struct vgpu_cost table[VGPU_COSTS], uint64_t key, uint64_t most_ns)
{
	struct vgpu_cost *cost = find(table, key);
	int32_t since;

	if (cost == NULL || GET(cost->average_ns) == 0 || GET(cost->average_ns) > most_ns)
		return 0;
	since = GET(cost->since_sample) + 1;
	if (is_due(cost, since, true))
		return 0;
	SET(cost->since_sample, since);
	return GET(cost->average_ns);
}

void vgpu_cost_learn(struct vgpu_cost table[VGPU_COSTS], uint64_t key, uint64_t took_ns)
{
	struct vgpu_cost *cost = find(table, key);
	uint64_t average;
	uint16_t samples;

	if (cost == NULL)
		return;
	average = GET(cost->average_ns);
	samples = GET(cost->samples);
	if (took_ns > LONGEST_NS)
		took_ns = LONGEST_NS;
	if (samples >= OFTEN && took_ns > average * OUTLIER && GET(cost->outliers) < 2) {
		SET(cost->outliers, (uint16_t)(GET(cost->outliers) + 1));
		return;
	}
	SET(cost->outliers, 0);
	if (samples < 1000)
		samples++;
	/* At first the clocks may still be low, and things not lie where they are used. */
	if (samples <= KNOWN && took_ns < average / 8 * 7)
		average = took_ns;
	else if (samples < 8) /* a plain mean at first, then one that forgets */
		average = (average * (samples - 1u) + took_ns) / samples;
	else
		average = (average * 7 + took_ns) / 8;
	SET(cost->average_ns, average == 0 ? 1 : (uint32_t)average);
	SET(cost->brief_ns, (uint32_t)brief_after(GET(cost->brief_ns), average, took_ns));
	SET(cost->samples, samples);
}

/* One is timed now. */
static void no_more_put_off(struct vgpu_cost *cost, uint32_t put_off, bool roughly)
{
	SET(cost->put_off, 0);
	SET(cost->since_sample, 1 - (int32_t)(put_off * SELDOM * rarely(cost, roughly) / REST));
}

bool vgpu_cost_put_off(struct vgpu_cost *cost, bool roughly)
{
	uint16_t put_off = (uint16_t)(GET(cost->put_off) + 1), in_vain = GET(cost->in_vain);

	if (put_off >= PUT_OFF >> (in_vain < IN_VAIN ? in_vain : IN_VAIN)) {
		no_more_put_off(cost, put_off, roughly);
		SET(cost->in_vain, in_vain == UINT16_MAX ? BESIDE : (uint16_t)(in_vain + 1));
		return false;
	}
	SET(cost->put_off, put_off);
	SET(cost->since_sample, SELDOM * ROUGHLY);
	return true;
}

void vgpu_cost_alone(struct vgpu_cost *cost, bool roughly)
{
	no_more_put_off(cost, GET(cost->put_off), roughly);
	SET(cost->in_vain, 0);
}

void vgpu_cost_learn_beside(struct vgpu_cost table[VGPU_COSTS], uint64_t key, uint64_t took_ns)
{
	struct vgpu_cost *cost = find(table, key);

	if (cost == NULL)
		return;
	if (GET(cost->samples) != 0 && took_ns > GET(cost->average_ns) &&
	    (GET(cost->in_vain) == 0 || GET(cost->in_vain) % BESIDE != 0))
		return;
	vgpu_cost_learn(table, key, took_ns);
}

void vgpu_cost_guess(struct vgpu_cost table[VGPU_COSTS], uint64_t key, uint64_t took_ns)
{
	struct vgpu_cost *cost = find(table, key);

	if (cost != NULL && GET(cost->samples) == 0)
		SET(cost->average_ns, took_ns == 0	     ? 1
				      : took_ns > LONGEST_NS ? LONGEST_NS
							     : (uint32_t)took_ns);
}

uint32_t vgpu_cost_saved_ns(uint32_t saved)
{
	return saved != 0 ? saved - 1 : SAVED_NS;
}

bool vgpu_cost_tells_saved(uint32_t launches, uint64_t expected_ns)
{
	return launches >= SAVED_LAUNCHES && expected_ns / launches <= SAVED_BELOW_NS;
}

uint32_t vgpu_cost_saved(uint32_t saved, uint32_t launches, uint64_t expected_ns, uint64_t took_ns)
{
	int64_t ns = vgpu_cost_saved_ns(saved);

	if (!vgpu_cost_tells_saved(launches, expected_ns))
		return saved;
	ns += ((int64_t)expected_ns - (int64_t)took_ns) / (int64_t)launches / 8;
	return 1 + (uint32_t)(ns < 0 ? 0 : ns > SAVED_MOST_NS ? SAVED_MOST_NS : ns);
}
