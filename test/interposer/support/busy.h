/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A step whose cap the library holds, and kernels that use it up: of the simulated driver, as long as they
 * are told. */
#ifndef VGPU_TEST_BUSY_H
#define VGPU_TEST_BUSY_H

#include "harness.h"

#define MS 1000000ull

/* As root does, while programs run. */
static inline void step_gate(const struct step *step, bool gated)
{
	__atomic_store_n(&step->limits->device[0].gated, gated, __ATOMIC_RELAXED);
	if (gated)
		__atomic_fetch_or(&step->limits->flags, VGPU_GATED, __ATOMIC_RELEASE);
	else
		__atomic_fetch_and(&step->limits->flags, ~VGPU_GATED, __ATOMIC_RELEASE);
}

static inline void step_cap(const struct step *step, unsigned percent)
{
	__atomic_store_n(&step->limits->device[0].sm_percent, percent, __ATOMIC_RELAXED);
	__atomic_store_n(&step->limits->device[0].job_sm_percent, percent, __ATOMIC_RELAXED);
	__atomic_fetch_add(&step->limits->generation, 1, __ATOMIC_RELEASE);
}

/* A job for each case: what was used stands in its ledger. */
static inline struct step step_with_cap(uint32_t job, unsigned percent)
{
	struct step step = step_make(job, 0, 1000, 1000);

	step_cap(&step, percent);
	return step;
}

static inline struct step step_with_gate(uint32_t job, unsigned percent)
{
	struct step step = step_with_cap(job, percent);

	step_gate(&step, true);
	return step;
}

static inline CUfunction busy_kernel(void)
{
	CUmodule module;
	CUfunction function = NULL;

	CHECK(cuModuleLoadData(&module, ".visible .entry simgpu_busy_us(.param .u32 us)") == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&function, module, "simgpu_busy_us") == CUDA_SUCCESS);
	return function;
}

static inline void busy(CUfunction function, unsigned us, CUstream stream)
{
	void *params[] = {&us};

	CHECK_IS(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL), CUDA_SUCCESS);
}

/* Launches kernels of this length into so many streams in turn for a while. What part of it the GPU was
 * kept busy, in thousandths: by the time that it took, as the simulated GPU does one thing at a time. */
static inline unsigned keep_busy(CUfunction function, unsigned us, const CUstream *stream, unsigned streams,
				 uint64_t for_ns)
{
	uint64_t since = now_ns(), launched = 0;

	for (; now_ns() - since < for_ns; launched++)
		busy(function, us, streams == 0 ? NULL : stream[launched % streams]);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	return (unsigned)(launched * us * 1000000 / (now_ns() - since));
}

/* Until then launches wait. */
static inline uint64_t owed_until(const struct step *step)
{
	return __atomic_load_n(&step->ledger->share_free_at_ns[0], __ATOMIC_RELAXED);
}

static inline uint64_t of_step_until(const struct step *step)
{
	return __atomic_load_n(&step->ledger->step[0].share_free_at_ns[0], __ATOMIC_RELAXED);
}

/* What was used up to now is paid for then. */
static inline void owe(const struct step *step, uint64_t until_ns)
{
	__atomic_store_n(&step->ledger->share_free_at_ns[0], until_ns, __ATOMIC_RELAXED);
}

/* What is charged from here on, at 50 %, with so much owed that every launch would wait: for work that is in
 * flight already. Until owe is called again. */
static uint64_t count_from_ns;
static inline void begin_to_count(const struct step *step)
{
	step_cap(step, 50);
	owe(step, count_from_ns = now_ns() + 10000 * MS);
}

static inline uint64_t charged_ns(const struct step *step)
{
	return (owed_until(step) - count_from_ns) / 2;
}

/* How often the simulated driver was called. */
static inline unsigned asked(const char *name)
{
	unsigned times = 0;

	CHECK_IS(cuSimAsked(name, &times), CUDA_SUCCESS);
	return times;
}

/* Takes away what was saved up, which comes on top of the cap. */
static inline void use_up(const struct step *step, uint32_t device)
{
	uint64_t now = now_ns(), *of_job = &step->ledger->share_free_at_ns[device];
	uint64_t *of_step = &step->ledger->step[0].share_free_at_ns[device];

	if (__atomic_load_n(of_job, __ATOMIC_RELAXED) < now)
		__atomic_store_n(of_job, now, __ATOMIC_RELAXED);
	if (__atomic_load_n(of_step, __ATOMIC_RELAXED) < now)
		__atomic_store_n(of_step, now, __ATOMIC_RELAXED);
}

/* Never above the cap, but for what is in flight at the end. Below it when somebody else has kept this
 * machine's cores busy: then again. */
static inline void check_cap(const struct step *step, CUfunction function, unsigned us,
			     const CUstream *stream, unsigned streams, unsigned want)
{
	unsigned got = 0;

	for (int try = 0; try < 20 && got + 30 < want; try++) {
		use_up(step, 0);
		got = keep_busy(function, us, stream, streams, 400 * MS);
		CHECK(got <= want + 30);
	}
	if (got + 30 < want)
		fprintf(stderr, "%u µs: %u of 1000, not %u\n", us, got, want), failures++;
}

#endif
