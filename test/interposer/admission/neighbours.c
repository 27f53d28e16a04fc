/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Neighbours on a GPU that do not behave: that are killed or stopped, lie, or lose their claims. None of
 * them costs a slice more than the neighbour's own share. */
#include "slices.h"

/* The other one goes on within a second, and has its share from then on. */
static void without_neighbour(int signal)
{
	struct step a = slice_make(1, 50, 0), b = slice_make(2, 50, 0);

	for (int round = 0; round < 2; round++) {
		struct worker *left = worker_start(&a, 1000, 1), *right = worker_start(&b, 1000, 1);
		uint64_t before = launches_of(left);

		CHECK(worker_waits_for(left, before + 50 + 7u * (unsigned)round, 5000 * MS));
		kill(right->pid, signal);
		before = launches_of(left);
		CHECK(worker_waits_for(left, before + 300, 1000 * MS + 5000 * MS * (round < 1)));
		if (round == 1)
			check_shares(&left, (unsigned[]){500}, 1, 500 * MS, "what is left");
		kill(right->pid, SIGKILL);
		waitpid(right->pid, NULL, 0);
		worker_end(left);
	}
}

static void a_killed_holder_is_not_waited_for(void)
{
	without_neighbour(SIGKILL);
}

static void a_stopped_holder_is_not_waited_for(void)
{
	without_neighbour(SIGSTOP);
}

/* What a neighbour writes into its claims, again and again. */
static struct vgpu_claims *hostile;
static void liar(void (*lie)(struct vgpu_claim *, uint64_t))
{
	struct step a = slice_make(11, 50, 0), b = slice_make(12, 30, 0);
	struct worker *left;
	unsigned got = 0;
	pid_t pid;

	hostile = slice_claims(&b);
	left = worker_start(&a, 1000, 1);
	pid = fork();
	if (pid == 0) {
		for (uint64_t since = now_ns(); now_ns() - since < 30000 * MS; )
			lie(&hostile->claim[0], now_ns());
		_exit(0);
	}
	/* 35 points at most are waited for, and a turn that ends takes what is in flight with it. */
	for (int try = 0; try < 20 && got < 400; try++) {
		shares_of(&left, 1, 700 * MS, &got);
		CHECK(got <= 520);
	}
	if (got < 400)
		fprintf(stderr, "beside the liar: %u of 1000\n", got);
	CHECK(got >= 400);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	worker_end(left);
}

#define SAY(field, value) __atomic_store_n(&claim->field, value, __ATOMIC_RELAXED)
static void holds(struct vgpu_claim *claim, uint64_t now)
{
	SAY(holds_since_ns, 1);
	SAY(wants_since_ns, 1);
	SAY(until_ns, now + 2 * MS);
	sched_yield();
}

static void wants(struct vgpu_claim *claim, uint64_t now)
{
	SAY(wants_since_ns, 1);
	SAY(interactive_us, 1);
	SAY(until_ns, now + 2 * MS);
	SAY(bell, claim->bell + 1);
	sched_yield();
}

static void garbage(struct vgpu_claim *claim, uint64_t now)
{
	static uint64_t x = 88172645463325252ull;

	for (size_t i = 0; i < sizeof(*claim) / 8; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		__atomic_store_n(&((uint64_t *)claim)[i], x % 3 == 0 ? x : now + x % (8 * MS) - 4 * MS,
				 __ATOMIC_RELAXED);
	}
	sched_yield();
}

static void who_claims_to_hold_costs_its_share(void)
{
	liar(holds);
}

static void who_claims_to_want_costs_its_share(void)
{
	liar(wants);
}

static void garbage_costs_no_more(void)
{
	liar(garbage);
}

/* A neighbour says that its work ended just now: none of ours is left uncounted for that. */
static void drains(struct vgpu_claim *claim, uint64_t now)
{
	SAY(drained_ns, now + 2900000);
	SAY(until_ns, now + 2 * MS);
	sched_yield();
}

static void what_others_say_hides_nothing_that_was_used(void)
{
	liar(drains);
}

#define LIARS 9
/* Slices without a cap that never use the GPU. Each says in its turn that it holds, or that it is about
 * to. */
static void liars(bool hold)
{
	struct step a = slice_make(21, 40, 0), liar;
	struct vgpu_claims *claims[LIARS];
	struct worker *left;
	unsigned got = 0;
	pid_t pid;

	for (uint32_t i = 0; i < LIARS; i++) {
		liar = slice_make(22 + i, 0, 0);
		claims[i] = slice_claims(&liar);
	}
	left = worker_start(&a, 1000, 1);
	pid = fork();
	for (uint64_t since = now_ns(), now = since; pid == 0 && now - since < 60000 * MS; now = now_ns()) {
		uint64_t turn = (now - since) / (30 * MS) % LIARS;
		bool pulse = now / 100000 % 8 == 0;

		for (uint32_t i = 0; i < LIARS; i++) {
			struct vgpu_claim *claim = &claims[i]->claim[0];

			SAY(holds_since_ns, i == turn && (hold || pulse));
			SAY(wants_since_ns, !hold);
			SAY(until_ns, now + 2 * MS);
		}
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	if (pid == 0)
		_exit(0);
	/* 54 points are theirs and 5 are waited for besides, so that 41 are left; whenever patience comes
	 * back or ends, a hand-over is lost. */
	for (int try = 0; try < 20 && got < 320; try++) {
		shares_of(&left, 1, 1000 * MS, &got);
		CHECK(got <= 420);
	}
	if (got < 320)
		fprintf(stderr, "beside %d liars: %u of 1000\n", LIARS, got);
	CHECK(got >= 320);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	worker_end(left);
}

static void many_who_claim_to_hold_cost_what_is_left_to_them(void)
{
	liars(true);
}

static void many_who_claim_to_be_next_cost_what_is_left_to_them(void)
{
	liars(false);
}

static void cut_or_vanished_claims_hurt_nobody(void)
{
	struct step a = slice_make(13, 50, 0), b = slice_make(14, 50, 0);
	struct worker *left = worker_start(&a, 1000, 1), *right = worker_start(&b, 1000, 1);
	char path[600];

	CHECK(worker_waits_for(left, 50, 5000 * MS) && worker_waits_for(right, 50, 5000 * MS));
	kill(right->pid, SIGKILL);
	waitpid(right->pid, NULL, 0);
	slice_claims_path(&b, path);
	CHECK(truncate(path, 8) == 0);
	check_shares(&left, (unsigned[]){500}, 1, 500 * MS, "beside cut claims");
	CHECK(truncate(path, sizeof(struct vgpu_claims)) == 0);
	CHECK(truncate(path, 0) == 0 && unlink(path) == 0);
	check_shares(&left, (unsigned[]){500}, 1, 500 * MS, "beside no claims");
	slice_change(&a, 40);
	check_shares(&left, (unsigned[]){400}, 1, 500 * MS, "after that");
	worker_end(left);
}

int main(void)
{
	gpus(0);
	CASE_OF_TIME(a_killed_holder_is_not_waited_for);
	CASE_OF_TIME(a_stopped_holder_is_not_waited_for);
	CASE_OF_TIME(who_claims_to_hold_costs_its_share);
	CASE_OF_TIME(who_claims_to_want_costs_its_share);
	CASE_OF_TIME(garbage_costs_no_more);
	CASE_OF_TIME(what_others_say_hides_nothing_that_was_used);
	CASE_OF_TIME(many_who_claim_to_hold_cost_what_is_left_to_them);
	CASE_OF_TIME(many_who_claim_to_be_next_cost_what_is_left_to_them);
	CASE(cut_or_vanished_claims_hurt_nobody);
	return summary();
}
