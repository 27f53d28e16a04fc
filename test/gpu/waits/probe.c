/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PAGE_BYTES 4096u
/* So long a call has to return if it does not wait; kernels may be compiled in it. */
#define PATIENCE_MS 250u
#define QUESTION_MS 50u

static volatile uint32_t *word;
static CUdeviceptr word_address;
static uint32_t value;
static CUstream held, free_stream;
static CUevent begin, end, other;

/* One call on a thread of its own. */
struct asked {
	CUresult (*call)(struct things *t);
	struct things *t;
	CUresult result;
	int done;
	pthread_t thread;
};

static void *ask(void *argument)
{
	struct asked *asked = argument;

	cu.cuCtxSetCurrent(context);
	asked->result = asked->call(asked->t);
	__atomic_store_n(&asked->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void start(struct asked *asked, CUresult (*call)(struct things *t), struct things *t)
{
	*asked = (struct asked){.call = call, .t = t};
	if (pthread_create(&asked->thread, NULL, ask, asked) != 0)
		exit(99);
}

static bool returns(const struct asked *asked, unsigned ms)
{
	for (unsigned i = 0; i < ms * 10; i++) {
		if (__atomic_load_n(&asked->done, __ATOMIC_ACQUIRE))
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	return false;
}

/* What a thread that watches over held work may want to know meanwhile. */
static CUresult event_query(struct things *t)
{
	(void)t;
	return cu.cuEventQuery(end);
}

static CUresult elapsed_time(struct things *t)
{
	float ms;

	(void)t;
	return cu.cuEventElapsedTime(&ms, begin, end);
}

static CUresult stream_query(struct things *t)
{
	(void)t;
	return cu.cuStreamQuery(free_stream);
}

static CUresult event_record(struct things *t)
{
	(void)t;
	return cu.cuEventRecord(other, free_stream);
}

static CUresult (*const question[])(struct things *t) = {event_query, elapsed_time, stream_query,
							 event_record};
#define QUESTIONS (sizeof(question) / sizeof(question[0]))

static CUresult hold(void)
{
	value++;
	TRY(cu.cuStreamWaitValue32_v2(held, word_address, value, CU_STREAM_WAIT_VALUE_GEQ));
	TRY(cu.cuEventRecord(begin, held));
	TRY(launch(spin, 200, held));
	return cu.cuEventRecord(end, held);
}

static CUresult begin_probe(void)
{
	void *page = aligned_alloc(PAGE_BYTES, PAGE_BYTES);

	word = page;
	*word = 0;
	TRY(cu.cuMemHostRegister_v2(page, PAGE_BYTES,
				    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	TRY(cu.cuMemHostGetDevicePointer_v2(&word_address, page, 0));
	TRY(cu.cuStreamCreate(&held, STREAM_NON_BLOCKING));
	TRY(cu.cuStreamCreate(&free_stream, STREAM_NON_BLOCKING));
	TRY(cu.cuEventCreate(&begin, 0));
	TRY(cu.cuEventCreate(&end, 0));
	TRY(cu.cuEventCreate(&other, CU_EVENT_DISABLE_TIMING));
	TRY(launch(spin, 200, held));
	return cu.cuCtxSynchronize();
}

/* One call, made for the held stream or for another one. */
static CUresult probe(const struct calls *calls, const struct call *call, bool same)
{
	struct asked one, questions[QUESTIONS];
	struct things t = {.stream = same ? held : free_stream};
	bool waits;

	TRY(call->prepare(&t));
	TRY(cu.cuCtxSynchronize());
	TRY(hold());
	start(&one, call->call, &t);
	waits = !returns(&one, PATIENCE_MS);
	printf("%s\t%s\t%s\t%s", calls->name, call->name, same ? "same" : "other",
	       waits ? "waits" : "returns");
	for (unsigned i = 0; i < QUESTIONS; i++) {
		start(&questions[i], question[i], NULL);
		printf("\t%s", returns(&questions[i], QUESTION_MS) ? "returns" : "waits");
	}
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < QUESTIONS; i++)
		pthread_join(questions[i].thread, NULL);
	pthread_join(one.thread, NULL);
	printf("\t%d\n", (int)one.result);
	fflush(stdout);
	TRY(cu.cuCtxSynchronize());
	return one.result == CUDA_SUCCESS ? call->undo(&t) : CUDA_SUCCESS;
}

int probe_all(const struct calls *const *calls, unsigned count)
{
	CUresult result = begin_probe();

	printf("program\tcall\tstream\tcall\tcuEventQuery\tcuEventElapsedTime\tcuStreamQuery\tcuEventRecord\t"
	       "result\n");
	for (unsigned c = 0; c < count && result == CUDA_SUCCESS; c++) {
		for (unsigned i = 0; i < calls[c]->count * 2 && result == CUDA_SUCCESS; i++) {
			const struct call *call = &calls[c]->call[i / 2];

			if (*(void *const *)call->needs != NULL)
				result = probe(calls[c], call, i % 2 == 0);
		}
	}
	if (result != CUDA_SUCCESS)
		printf("error %d\n", (int)result);
	return result == CUDA_SUCCESS ? 0 : 1;
}
