/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "virtual_driver.h"

#include "api/symbols.h"

#include <stdlib.h>
#include <string.h>

#define STREAMS 8
#define QUEUE 8192
#define EVENTS 16384
/* What things take on the host. */
#define ASK_NS (2 * US)
#define PUT_NS US
/* From a launch until the GPU begins, as VGPU_LAUNCH_NS. */
#define LAUNCH_NS (2 * US)
/* From when a word is written until a stream that waits for it goes on (semaphore.h). */
#define WAKE_NS (6 * US)

enum kind { KERNEL, COPY, EVENT, WAIT };

struct item {
	enum kind kind;
	uint64_t put_ns, ns;
	uint32_t event;
	const uint32_t *word;
	uint32_t value;
};

struct queue {
	uint32_t head, tail;
	uint64_t free_ns; /* when what was before the head is done */
	struct item item[QUEUE];
};

struct virtual_asked virtual_asked;
void *vgpu_real[VGPU_SYMBOLS];

static struct queue queue[STREAMS];
static uint64_t event_done_ns[EVENTS]; /* UINT64_MAX: recorded and not done, 0: never */
static uint32_t events;
static uint64_t gpu_free_ns;
static uint32_t busy_ns[HOST_MS];
static struct item *wait_for[QUEUE];
static uint32_t waiting;

/* ---- the GPU: one kernel after the other ---- */

static void busy(uint64_t from_ns, uint64_t to_ns)
{
	while (from_ns < to_ns) {
		uint64_t ms = (from_ns - HOST_BEGIN) / MS, end = HOST_BEGIN + (ms + 1) * MS;

		end = end < to_ns ? end : to_ns;
		if (ms < HOST_MS)
			busy_ns[ms] += (uint32_t)(end - from_ns);
		from_ns = end;
	}
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Words that were written are seen before the clock goes on. */
static void see_words(void)
{
	for (uint32_t i = 0; i < waiting; ) {
		struct item *item = wait_for[i];

		if ((int32_t)(*item->word - item->value) < 0) {
			i++;
			continue;
		}
		item->ns = virtual_now + WAKE_NS;
		wait_for[i] = wait_for[--waiting];
	}
}

/* What needs no GPU. */
static void pass_marks(struct queue *q)
{
	for (; q->tail != q->head; q->tail++) {
		struct item *item = &q->item[q->tail % QUEUE];

		if (item->kind == KERNEL || (item->kind == WAIT && item->ns == 0))
			return;
		q->free_ns = later(q->free_ns, item->kind == WAIT ? item->ns : item->put_ns) +
			     (item->kind == COPY ? item->ns : 0);
		if (item->kind == EVENT)
			event_done_ns[item->event] = q->free_ns;
	}
}

/* The next kernel; UINT64_MAX: there is none that can begin. */
static uint64_t next_start(struct queue **out)
{
	uint64_t first = UINT64_MAX;

	for (uint32_t s = 0; s < STREAMS; s++) {
		struct queue *q = &queue[s];
		uint64_t start;

		pass_marks(q);
		if (q->tail == q->head || q->item[q->tail % QUEUE].kind != KERNEL)
			continue;
		start = later(later(q->free_ns, q->item[q->tail % QUEUE].put_ns + LAUNCH_NS), gpu_free_ns);
		if (start < first) {
			first = start;
			*out = q;
		}
	}
	return first;
}

void virtual_driver_advance(uint64_t to_ns)
{
	struct queue *q = NULL;
	uint64_t start;

	see_words();
	while ((start = next_start(&q)) <= to_ns) {
		gpu_free_ns = q->free_ns = start + q->item[q->tail++ % QUEUE].ns;
		busy(start, gpu_free_ns);
	}
	virtual_now = later(virtual_now, to_ns);
}

static void put(CUstream stream, struct item item)
{
	struct queue *q = &queue[(uintptr_t)stream / 16 % STREAMS];

	if (q->head - q->tail == QUEUE)
		abort();
	item.put_ns = virtual_now;
	q->item[q->head % QUEUE] = item;
	if (item.kind == WAIT && waiting == QUEUE)
		abort();
	if (item.kind == WAIT)
		wait_for[waiting++] = &q->item[q->head % QUEUE];
	q->head++;
}

bool virtual_driver_is_drained(CUstream stream)
{
	struct queue *q = &queue[(uintptr_t)stream / 16 % STREAMS];

	virtual_driver_advance(virtual_now);
	return q->head == q->tail && q->free_ns <= virtual_now;
}

void virtual_driver_put(CUstream stream, bool kernel, uint64_t ns)
{
	put(stream, (struct item){.kind = kernel ? KERNEL : COPY, .ns = ns});
}

uint64_t virtual_driver_busy_ns(uint64_t from_ms, uint64_t to_ms)
{
	uint64_t ns = 0;

	virtual_driver_advance(virtual_now);
	for (uint64_t ms = from_ms; ms < to_ms && ms < HOST_MS; ms++)
		ns += busy_ns[ms];
	return ns;
}

void virtual_driver_begin(void)
{
	memset(queue, 0, sizeof(queue));
	memset(busy_ns, 0, sizeof(busy_ns));
	gpu_free_ns = events = waiting = 0;
}

/* ---- the driver ---- */

static CUresult event_create(CUevent *event, unsigned int flags)
{
	(void)flags;
	if (++events == EVENTS)
		abort();
	virtual_asked.events_made++;
	event_done_ns[events] = 0;
	*event = (CUevent)(uintptr_t)events;
	return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
	virtual_asked.events_gone += event != NULL;
	return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
	virtual_asked.records++;
	virtual_driver_advance(virtual_now + PUT_NS);
	event_done_ns[(uintptr_t)event] = UINT64_MAX;
	put(stream, (struct item){.kind = EVENT, .event = (uint32_t)(uintptr_t)event});
	return CUDA_SUCCESS;
}

static bool is_done(CUevent event)
{
	return event_done_ns[(uintptr_t)event] <= virtual_now;
}

static CUresult event_query(CUevent event)
{
	virtual_asked.event_queries++;
	virtual_driver_advance(virtual_now + ASK_NS);
	return is_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_elapsed(float *ms, CUevent begin, CUevent end)
{
	virtual_asked.elapsed++;
	virtual_driver_advance(virtual_now + ASK_NS);
	if (!is_done(begin) || !is_done(end))
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(event_done_ns[(uintptr_t)end] - event_done_ns[(uintptr_t)begin]) / 1e6);
	return CUDA_SUCCESS;
}

static CUresult stream_query(CUstream stream)
{
	virtual_asked.stream_queries++;
	virtual_driver_advance(virtual_now + ASK_NS);
	return virtual_driver_is_drained(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult stream_wait(CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)
{
	(void)flags;
	virtual_driver_advance(virtual_now + PUT_NS);
	put(stream,
	    (struct item){.kind = WAIT, .word = (const uint32_t *)(uintptr_t)address, .value = value});
	return CUDA_SUCCESS;
}

static CUresult host_register(void *host, size_t bytes, unsigned int flags)
{
	(void)host, (void)bytes, (void)flags;
	return CUDA_SUCCESS;
}

static CUresult host_pointer(CUdeviceptr *device, void *host, unsigned int flags)
{
	(void)flags;
	*device = (uintptr_t)host;
	return CUDA_SUCCESS;
}

static CUresult get_context(CUcontext *context)
{
	virtual_asked.contexts++;
	*context = (CUcontext)(uintptr_t)0x100;
	return CUDA_SUCCESS;
}

static CUresult set_context(CUcontext context)
{
	(void)context;
	return CUDA_SUCCESS;
}

static CUresult exchange_mode(int *mode)
{
	(void)mode;
	return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, int *status)
{
	(void)stream;
	*status = 0;
	return CUDA_SUCCESS;
}

void *vgpu_real_look_up(enum vgpu_symbol symbol)
{
	static const struct {
		enum vgpu_symbol symbol;
		void *function;
	} known[] = {
		{VGPU_SYMBOL_cuEventCreate, (void *)event_create}, {VGPU_SYMBOL_cuEventDestroy_v2, (void *)event_destroy},
		{VGPU_SYMBOL_cuEventRecord, (void *)event_record}, {VGPU_SYMBOL_cuEventQuery, (void *)event_query},
		{VGPU_SYMBOL_cuEventElapsedTime, (void *)event_elapsed}, {VGPU_SYMBOL_cuStreamQuery, (void *)stream_query},
		{VGPU_SYMBOL_cuStreamWaitValue32_v2, (void *)stream_wait}, {VGPU_SYMBOL_cuMemHostRegister_v2, (void *)host_register},
		{VGPU_SYMBOL_cuMemHostGetDevicePointer_v2, (void *)host_pointer}, {VGPU_SYMBOL_cuCtxGetCurrent, (void *)get_context},
		{VGPU_SYMBOL_cuCtxSetCurrent, (void *)set_context},
		{VGPU_SYMBOL_cuThreadExchangeStreamCaptureMode, (void *)exchange_mode},
		{VGPU_SYMBOL_cuStreamIsCapturing, (void *)is_capturing}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (known[i].symbol == symbol)
			return vgpu_real[symbol] = known[i].function;
	}
	return NULL;
}
