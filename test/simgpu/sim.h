/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the simulated libcuda and libnvidia-ml share: the configuration of the node's GPUs, and the
 * state file in which every process of the node books memory and GPU time. */
#ifndef SIMGPU_SIM_H
#define SIMGPU_SIM_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_DEVICES 16
#define SIM_MAX_PROCS 1024
#define SIM_MIB (1ull << 20)
#define SIM_GRANULE_BYTES (2 * SIM_MIB) /* physical memory is handed out in these */
#define SIM_MANAGED_BYTES (64ull << 10) /* managed memory in these … */
#define SIM_MANAGED_PIECE_BYTES (128 * SIM_MIB) /* … and all of a device together in these */
#define SIM_BUCKETS 1024		/* GPU time is booked in buckets of this many … */
#define SIM_BUCKET_NS 200000000ull	/* … times this long: 205 s, past and future */
#define SIM_MAX_LIMITS 256		/* of memory, for cgroups */
#define SIM_CGROUP_BYTES 256
#define SIM_SHARES 8			/* so many processes share a bucket by name */

struct sim_device_conf {
	char name[96];
	char uuid[48]; /* "GPU-8-4-4-4-12" */
	uint8_t uuid_raw[16];
	uint64_t mem_bytes;	 /* as NVML says */
	uint64_t reserved_bytes; /* the driver's own; CUDA sees mem_bytes less this */
	uint64_t context_bytes;	 /* what a process pays for each context */
	int minor;
	unsigned pci_bus;
	int sm_count;
	int cc_major, cc_minor;
	int speed;	   /* CUDA's own order is fastest first, NVML's is by bus */
	bool lost;	   /* NVML and CUDA fail on it as on a GPU that fell off the bus */
	unsigned recovery; /* nvmlDeviceGpuRecoveryAction_t: what the driver wants done; 0: nothing */
	bool hidden;	   /* its device node cannot be opened by this process */
};

/* Of the video encoder and of screen capture. */
enum sim_sessions {
	SIM_SESSIONS_NONE,
	SIM_SESSIONS_LISTED,
	SIM_SESSIONS_COUNTED /* the list is not supported */
};


struct sim_conf {
	char dir[PATH_MAX - 64];
	char driver[80];
	int cuda_version; /* 13000 */
	unsigned context_us;
	unsigned pool_more_mib; /* what a pool that grows takes besides the chunks that it needs */
	bool pool_silent;     /* nobody is told what a pool holds */
	bool straddle;	      /* small blocks lie across two granules */
	unsigned pitch_bytes; /* what rows are padded to */
	bool no_usage_by_process;
	bool only_samples_by_process; /* and no mean of each */
	bool mig_attributes;
	bool memory_limits; /* of cgroups */
	int sessions; /* one of enum sim_sessions */
	uint64_t seed;
	int device_count;
	struct sim_device_conf device[SIM_MAX_DEVICES];
};

struct sim_proc_device {
	uint64_t mem_bytes; /* all physical memory, contexts included */
	uint64_t managed_bytes; /* of these: what NVML leaves out of the process's figure */
	uint64_t busy_ns;   /* GPU time ever queued */
	uint32_t contexts;
	uint32_t reserved;
};

struct sim_proc {
	uint32_t live;
	int32_t pid;
	uint64_t start_ticks; /* field 22 of /proc/PID/stat */
	uint64_t pidns;
	char cgroup[SIM_CGROUP_BYTES]; /* "" before its first allocation under memory_limits */
	struct sim_proc_device device[SIM_MAX_DEVICES];
};

struct sim_share {
	int32_t pid; /* 0: nobody's */
	uint32_t busy_ns;
};

struct sim_bucket {
	uint64_t number; /* monotonic time / SIM_BUCKET_NS */
	uint64_t busy_ns;
	struct sim_share share[SIM_SHARES];
};

struct sim_gpu {
	uint64_t used_bytes;	/* sum over the processes; made again from them when in doubt */
	uint64_t managed_bytes; /* the same; of these */
	uint64_t highest_bytes; /* the most of used_bytes since it was asked last */
	uint64_t busy_until_ns; /* CLOCK_MONOTONIC: when all queued work is done */
	uint64_t tail_start_ns; /* the last run of work of one process begins here */
	uint32_t tail_proc;	/* whose it is: slot + 1 */
	uint32_t reserved;
	struct sim_bucket bucket[SIM_BUCKETS];
};

/* What a cgroup may have of a device. */
struct sim_limit {
	uint64_t inode; /* of its folder: another one of the same name is another cgroup */
	uint64_t soft_bytes, hard_bytes;
	int32_t device;
	char path[SIM_CGROUP_BYTES]; /* below the mount of the hierarchy; "": nobody's */
};

struct sim_state {
	uint64_t magic;
	uint64_t size_bytes;
	char boot_id[40]; /* pids and clocks of another boot mean nothing */
	pthread_mutex_t lock;
	uint32_t procs_high;
	struct sim_gpu gpu[SIM_MAX_DEVICES];
	struct sim_proc proc[SIM_MAX_PROCS];
	struct sim_limit limit[SIM_MAX_LIMITS];
};

/* conf.c */
/* Fills conf from DIR/simgpu.conf; a missing file means the defaults. -errno, with a line on
 * stderr, on a value that is not understood: a test must not pass on a GPU it did not ask for. */
int sim_conf_load(struct sim_conf *conf);
/* Finds which device nodes this process may open. */
void sim_conf_probe_nodes(struct sim_conf *conf);

/* state.c: all return 0 or -errno */
extern struct sim_conf sim_conf;
int sim_attach(void);	   /* configuration and state file; any number of times */
int sim_proc_register(void); /* a slot for this process; what it held under exec is dropped */
bool sim_lock(void);
void sim_unlock(void);
struct sim_state *sim_state(void);
void sim_sweep(void); /* with the lock held: frees what dead processes held */
struct sim_proc *sim_self(void); /* NULL before it has registered */
unsigned sim_own_slot(void);
uint64_t sim_pidns(void);
/* A start time, or 0 when the process is gone or a zombie. */
uint64_t sim_proc_start_ticks(int pid);

/* memory.c: all return 0 or -errno */
int sim_mem_take(int device, uint64_t bytes);
void sim_mem_give(int device, uint64_t bytes);
int sim_managed_take(int device, uint64_t bytes);
void sim_managed_give(int device, uint64_t bytes);
int sim_context_take(int device);
void sim_context_give(int device);
/* After a sweep: what the device has taken, and what of that the processes hold. */
uint64_t sim_mem_used(int device);
uint64_t sim_mem_held(int device);
uint64_t sim_mem_highest(int device); /* the most that was held since it was asked last */

/* limits.c: -errno, -EINVAL for what is no folder of cgroup v2, -ESRCH where no limit is set */
bool sim_limit_allows(int device, uint64_t more); /* with the lock held */
int sim_limit_set(int device, const char *folder, uint64_t soft, uint64_t hard);
int sim_limit_get(int device, const char *folder, uint64_t *soft, uint64_t *hard, uint64_t *used);

/* gputime.c: every GPU runs one piece of work at a time, in the order of submission */
uint64_t sim_now_ns(void);
/* What the control device's runlist is given; what the device did is asked of it then. */
void sim_time_put_in(int device, uint64_t ns);
/* Books len_ns on the device, not before ready_ns; returns when it ends. */
uint64_t sim_time_book(int device, uint64_t ready_ns, uint64_t len_ns);
/* Busy time within the window that ends now. */
uint64_t sim_time_busy(int device, uint64_t window_ns);
/* Busy time in the bucket of that number, of the process alone unless pid is 0. */
uint64_t sim_time_bucket(int device, uint64_t number, int pid);
/* With the lock held: work of a dead process that nothing waits behind never runs. */
void sim_time_cancel(int device, unsigned slot);

static inline uint64_t sim_round_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

#endif
