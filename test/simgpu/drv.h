/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Inside the simulated libcuda. Every function of the tables is sim_NAME here; the exported NAME
 * calls it (exports_cuda.c), so that no call inside the driver can be intercepted. */
#ifndef SIMGPU_DRV_H
#define SIMGPU_DRV_H

#include "sim.h"
#include "sim_types.h"

#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) \
	CUresult sim_##symbol params;
#include "api/cuda.def"
#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) \
	CUresult sim_##symbol params;
#include "extra.def"

#define SIM_LIMITS 3	     /* stack, printf, heap */
#define SIM_CHANNELS 8	     /* of a context on the control device */
#define SIM_QUEUE_DEPTH 1024 /* launches in flight before the host waits, as measured */

struct CUstream_st {
	CUcontext ctx;
	CUstream next;
	pthread_t owner; /* of a per-thread default stream */
	bool per_thread, dead;
	unsigned flags;
	int priority;
	CUgraph capture; /* what is being captured; NULL: work runs */
	int capture_mode, capture_status;
	pthread_t capturer;
	uint64_t ready_ns; /* when all that was queued so far is done, but for what is deferred */
	struct sim_deferred *deferred, *deferred_end;
	uint64_t queued, resumed; /* how many were ever deferred, and are not any more */
	unsigned head;
	uint64_t end_ns[SIM_QUEUE_DEPTH];
};

struct CUctx_st {
	CUcontext next;
	int ordinal; /* CUDA's number of the device */
	int device;  /* the index in sim_conf and in the state file */
	bool primary, dead;
	CUcontext derived_from; /* NULL, or the primary context that it ends with */
	unsigned flags;
	unsigned long long id;
	struct sim_granule *granules; /* that small blocks share */
	struct sim_block *blocks;
	CUstream streams;
	struct CUstream_st legacy;
	unsigned attached;    /* beyond the first time */
	uint64_t grown_bytes; /* of modules and limits: goes with the context */
	size_t limit[SIM_LIMITS];
	uint64_t made_bytes[SIM_LIMITS];
	uint32_t group, copies, channel[SIM_CHANNELS]; /* on the control device */
};

struct CUmemPoolHandle_st {
	CUmemoryPool next;
	int ordinal, device;
	bool is_default, dead, of_host, imported;
	uint64_t used_bytes, used_high, reserved_bytes, reserved_high, threshold, max_bytes;
	uint64_t attribute[4];
};

enum sim_kind {
	SIM_DEVICE,
	SIM_ASYNC,
	SIM_GRAPH,
	SIM_MANAGED,
	SIM_HOST,
	SIM_MAPPED,
	SIM_ARRAY,
	SIM_IMPORTED
};

/* One range of addresses that means something to the driver. */
struct sim_block {
	CUdeviceptr base;
	uint64_t bytes; /* as asked for */
	enum sim_kind kind;
	int ordinal, device;
	bool low;		 /* of a function with 32-bit pointers */
	uint64_t before;	 /* addresses taken in front of it */
	uint64_t span;		 /* addresses taken */
	uint64_t physical_bytes; /* own granules; 0: a part of the context's granules */
	bool resident;		 /* managed memory: on the device */
	CUcontext ctx;		 /* whose end frees it; NULL: nobody's */
	struct sim_block *prev, *next;
	CUmemoryPool pool;
	struct sim_vmm *vmm;
};

struct sim_driver {
	pthread_mutex_t lock;
	int count; /* visible devices */
	int device[SIM_MAX_DEVICES];
	CUcontext contexts;
	CUcontext primary[SIM_MAX_DEVICES];
	unsigned primary_refs[SIM_MAX_DEVICES], primary_flags[SIM_MAX_DEVICES];
	CUmemoryPool graph_pool[SIM_MAX_DEVICES];
	CUmemoryPool pools, default_pool[SIM_MAX_DEVICES], current_pool[SIM_MAX_DEVICES];
	unsigned fail_next;
	unsigned long long next_id;
};

extern struct sim_driver drv;

/* What the driver is asked on the way of other calls, so that a test can count it. */
enum sim_asked {
	SIM_ASKED_CAPTURING,
	SIM_ASKED_POOL,
	SIM_ASKED_CHOICE,
	SIM_ASKED_INFO,
	SIM_ASKED_BETWEEN,
	SIM_ASKED_EVENT,
	SIM_ASKED_CURRENT,
	SIM_ASKED_RECORD,
	SIM_EVENTS_MADE,
	SIM_ARRAYS_MADE,
	SIM_ARRAYS_GONE, /* mipmapped ones too */
	SIM_ASKED
};
extern unsigned drv_times[SIM_ASKED];

static inline void drv_asked(enum sim_asked what)
{
	__atomic_add_fetch(&drv_times[what], 1, __ATOMIC_RELAXED);
}

/* Calls what the test wants to happen while this function is in the driver, once. */
void drv_within(const char *name);

#define NEED(call)                             \
	do {                                   \
		CUresult need_ = (call);       \
		if (need_ != CUDA_SUCCESS)     \
			return need_;          \
	} while (0)

static inline void drv_lock(void)
{
	pthread_mutex_lock(&drv.lock);
}

static inline CUresult drv_unlock(CUresult result)
{
	pthread_mutex_unlock(&drv.lock);
	return result;
}

/* drv_init.c */
CUresult drv_ready(void); /* initialised, and not in a forked child */
CUresult drv_device(CUdevice device);
/* drv_visible.c: CUDA_VISIBLE_DEVICES over the devices that can be opened; how many */
int drv_visible(const char *text, int *device);

/* drv_ctx.c */
CUresult drv_current(CUcontext *ctx); /* ready, and a living current context */
CUresult drv_context(CUcontext ctx);  /* a living one; with the lock held */

/* drv_block.c: with the lock held */
CUdeviceptr drv_va_take(uint64_t bytes, bool low);
void drv_va_give(CUdeviceptr base, uint64_t bytes, bool low);
struct sim_block *drv_block_new(enum sim_kind kind, CUdeviceptr base, uint64_t bytes, CUcontext ctx);
struct sim_block *drv_block_find(CUdeviceptr pointer); /* interior pointers too */
void drv_block_drop(struct sim_block *block);	       /* forgets it; frees nothing else */

/* drv_small.c: with the lock held; 0 when the device has no granule left */
enum sim_place { SIM_PLACE_WIDE, SIM_PLACE_LOW, SIM_PLACE_MANAGED };
CUdeviceptr drv_small_take(CUcontext ctx, uint64_t bytes, enum sim_place place);
void drv_small_give(CUcontext ctx, CUdeviceptr base, uint64_t bytes);
/* A managed block is moved to a device; where the others of its granule are already, that is where it
 * goes. */
bool drv_small_move_in(CUcontext ctx, CUdeviceptr base, int *device);
void drv_small_move_out(CUcontext ctx, CUdeviceptr base);

/* drv_managed.c: with the lock held; to the device that uses it, if there is room, and back */
void drv_managed_move_in(struct sim_block *block, int device);
void drv_managed_move_out(struct sim_block *block);
void drv_managed_release(struct sim_block *block);

/* drv_mem.c: with the lock held */
bool drv_fail_injected(void);
void *drv_map(uint64_t span, uint64_t align); /* without the lock as well */
void drv_block_release(struct sim_block *block); /* gives back its memory and addresses */
CUresult drv_block_allocate(CUcontext ctx, enum sim_kind kind, CUdeviceptr *out, size_t bytes, bool low);

/* drv_limit.c: with the lock held; memory that a context grows and shrinks by */
bool drv_grow(CUcontext ctx, uint64_t bytes);
void drv_shrink(CUcontext ctx, uint64_t bytes);
void drv_limits_begin(CUcontext ctx);
bool drv_limits_apply(CUcontext ctx); /* at a launch */

/* drv_array.c: with the lock held */
void drv_arrays_free_all(CUcontext ctx);

/* drv_ctx.c: with the lock held; a context of a green one, which ends with the primary one */
CUresult drv_context_derive(CUcontext *out, CUcontext primary);

/* drv_pool.c */
CUresult drv_pool_init(int ordinal);
CUresult drv_pool_new(CUmemoryPool *out, int ordinal, uint64_t max_bytes, bool is_default);
CUresult drv_pool_living(CUmemoryPool pool); /* with the lock held */
void drv_pool_give(CUmemoryPool pool, uint64_t bytes); /* with the lock held */
void drv_pools_trim(int device);		       /* at a synchronisation */

/* Makes the pool hold at least so much; with the lock held. */
bool drv_pool_reserve(CUmemoryPool pool, uint64_t bytes);
void drv_pool_shrink(CUmemoryPool pool, uint64_t keep);

/* drv_deferred.c: with the lock held. Those that return true have taken the operation over. */
#define SIM_NEVER_NS UINT64_MAX
bool drv_deferred(CUstream stream); /* whether anything in it waits for a word */
bool drv_deferred_work(CUstream stream, uint64_t ns, CUresult *result);
bool drv_deferred_record(CUstream stream, CUevent event, CUresult *result);
bool drv_deferred_event(CUstream stream, CUevent event, CUresult *result); /* the stream waits for it */
void drv_deferred_forget(CUevent event, CUstream stream);
void drv_deferred_drop(CUstream stream);
void drv_deferred_settle(void); /* goes on with all that waits for nothing any more */

/* The same without the lock. The word is memory of the host. */
CUresult drv_deferred_wait(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags);
bool drv_word_is(CUdeviceptr address, uint32_t value, unsigned flags);

/* drv_pointer.c, with the lock held: the block when the driver may write or read all of that */
struct sim_block *drv_spans(CUdeviceptr pointer, uint64_t bytes);

/* drv_event.c: with the lock held */
uint64_t drv_event_ns(CUevent event); /* when it is reached */
void drv_event_reached(CUevent event, uint64_t ns);
uint64_t drv_event_deferred(CUevent event); /* how many of its records ever were */
bool drv_event_has_reached(CUevent event, uint64_t number, uint64_t *ns);
void drv_events_free_all(CUcontext ctx);

/* drv_stream.c: with the lock held */
void drv_stream_book(CUstream stream, uint64_t from_ns, uint64_t ns);
uint64_t drv_stream_ready_ns(CUstream stream); /* SIM_NEVER_NS while anything waits for a word */
void drv_stream_free_all(CUcontext ctx);
/* The lock is let go meanwhile: a moment, or until then if it can be told. */
void drv_sleep_unlocked(uint64_t until_ns);

/* drv_capture.c */
CUresult drv_safe(void); /* an error where a capture forbids the call, which ends that capture */
/* drv_graph.c: with the lock held */
CUresult drv_graph_alloc(CUgraph graph, int ordinal, size_t bytes, CUdeviceptr *out);
CUresult drv_graph_free(CUgraph graph, CUdeviceptr pointer);
CUgraph drv_graph_new(void);

/* drv_vmm.c: with the lock held */
void drv_vmm_unmapped(struct sim_vmm *vmm);
struct sim_vmm *drv_vmm_mapped(CUmemGenericAllocationHandle handle); /* NULL: no such handle */
struct sim_vmm *drv_vmm_mapped_at(CUdeviceptr pointer);		     /* the same of what is mapped there */
int drv_vmm_device(const struct sim_vmm *vmm);
/* Another handle of the same memory. */
CUresult drv_vmm_again(CUmemGenericAllocationHandle known, CUmemGenericAllocationHandle *handle);
CUresult drv_vmm_describe(CUmemGenericAllocationHandle handle, CUmemAllocationProp *prop, uint64_t *bytes);
/* A handle of memory that another process pays for. */
CUresult drv_vmm_import(const CUmemAllocationProp *prop, uint64_t bytes,
			CUmemGenericAllocationHandle *handle);

/* drv_multicast.c: with the lock held; unbinds all from an object that ends */
void drv_multicast_ended(uint64_t object);

/* drv_stream.c */
CUresult drv_stream(CUstream handle, CUstream *stream); /* takes the default ones too */
CUresult drv_enqueue(CUstream handle, uint64_t ns);
CUresult drv_wait(CUstream handle);
void drv_sleep_until(uint64_t ns);

static inline CUstream drv_ptsz(CUstream stream)
{
	return stream != NULL ? stream : CU_STREAM_PER_THREAD;
}

#endif
