/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The pages that the root side (Go, internal/ledger) and the interposer (C) share.
 *
 *   limits   one per step; root writes it, the job may only read it. Mapped, so that a changed
 *            limit is seen by running processes at once.
 *   ledger   one per job; the job's user owns and writes it. Root reads only
 *            a bounded copy: garbage there can harm only the job that wrote it.
 *   groups   one per job; the job's processes write down what they have the driver schedule (channels/).
 *            Changed with pwrite(2), as root waits for changes by inotify, which sees no mapping.
 *   time     one per job; root counts its GPU time there, the job may only read it. Read and written with
 *            pread(2) and pwrite(2): it is cut when the job ends, whoever has it open.
 *
 * Every page begins with its magic, the version of its layout and its size. Builds that do not know each
 * other read and write the same pages, as an upgrade comes while jobs run. So pages only grow: a field
 * keeps its place and its meaning, a new one takes reserved bytes or comes at the end of its page, and
 * where a page ends before it, it is zero. A new figure of use comes at the end of VGPU_LEDGER_FIGURES:
 * readers find by the ledger's size how many it has. VGPU_…_LEAST is what every page has. A change that
 * cannot be made so takes another version: a page of another version is refused, and the node has to be
 * drained for the upgrade (docs/decisions/node.md#049).
 *
 * Sizes and offsets are part of the contract: `make generate` writes internal/ledger/layout.go from them.
 * All integers are little-endian; every 64-bit field is read and written atomically. */
#ifndef VGPU_API_LAYOUT_H
#define VGPU_API_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* Where a task under strict isolation finds its step's folder (internal/rundir has the same). */
#define VGPU_SELF_DIR "/run/slurm-vgpu/self"
/* And where else: containers are often given all of /dev, and seldom anything of /run. */
#define VGPU_DEV_DIR "/dev/slurm-vgpu"
/* In both, the folder of the job's pages. */
#define VGPU_PAGES "pages"
/* In preload isolation the plugin names the folder in the environment. */
#define VGPU_STEP_DIR_ENV "VGPU_STEP_DIR"
#define VGPU_LIMITS_FILE "limits"
#define VGPU_LEDGER_FILE "ledger"
/* In the folder of the job's pages (internal/rundir has the same). */
#define VGPU_GROUPS_FILE "groups"
#define VGPU_TIME_FILE "time"

#define VGPU_LAYOUT_VERSION 8u /* of limits and ledger */
#define VGPU_VGPUD_VERSION 7u  /* of groups and time */
#define VGPU_LIMITS_LEAST 2256u
#define VGPU_LEDGER_LEAST 461504u
#define VGPU_TIME_LEAST 1080u
#define VGPU_LIMITS_MAGIC 0x314d494c55504756ull /* "VGPULIM1" */
#define VGPU_LEDGER_MAGIC 0x314447524c555056ull /* "VPULRGD1" */
#define VGPU_GROUPS_MAGIC 0x3150524755504756ull /* "VGPUGRP1" */
#define VGPU_TIME_MAGIC 0x314d495455504756ull	/* "VGPUTIM1" */

#define VGPU_MAX_DEVICES 16
#define VGPU_MAX_STEPS 256
#define VGPU_MAX_PROCS 1024
#define VGPU_UUID_BYTES 64
#define VGPU_PAGES_DIR_BYTES 112
#define VGPU_MAX_GROUPS 32
#define VGPU_GROUP_CHANNELS 16
/* Where the lock of a ledger's first slot lies, behind whatever the file may ever have (account/alive.h). */
#define VGPU_LOCKS_AT (1ll << 40)

/* vgpu_limits.flags */
#define VGPU_FAIL_OPEN 1u /* a ledger that cannot be used lets the program run unlimited */
#define VGPU_GATED 4u	  /* of some device the library holds the cap (gate/) */

/* vgpu_time_device.flags */
#define VGPU_TIME_FROZEN 1u    /* the job's step is frozen now */
#define VGPU_TIME_UNNAMED 2u   /* a process that is at work has written down no handles */
#define VGPU_TIME_INEXACT 4u   /* split among several that do not fill the GPU */
#define VGPU_TIME_IDLE 8u      /* no process of the job had anything to compute with at the last look */
#define VGPU_TIME_UNCOUNTED 16u /* nobody can say what it has just now: the driver refuses vgpud its calls */

struct vgpu_limits_device {
	char uuid[VGPU_UUID_BYTES];   /* "GPU-…", NUL-padded */
	uint64_t step_mem_bytes;      /* the step's limit */
	uint64_t job_mem_bytes;	      /* the job's limit; all its steps together */
	uint64_t device_mem_bytes;    /* the whole GPU, as NVML says */
	uint32_t sm_percent;	      /* the step's share of the GPU's time; 0: no cap */
	uint32_t nvml_index;
	uint32_t minor;
	uint32_t job_sm_percent; /* the job's; all its steps together */
	uint32_t gated; /* 1: the library holds the slice's cap, as the driver refuses vgpud its calls */
	uint32_t reserved[5];
};

struct vgpu_limits {
	uint64_t magic;
	uint32_t layout_version;
	uint32_t size_bytes; /* of the whole page */
	uint32_t job_id;
	uint32_t step_id; /* as in slurm.h, batch and extern included */
	uint32_t uid;	  /* of the job; a page of another user is not believed */
	uint32_t device_count;
	uint32_t flags;
	uint32_t generation; /* grows with every change of a running job */
	char job_step[40];   /* "123.0", "123.batch": for messages */
	struct vgpu_limits_device device[VGPU_MAX_DEVICES];
	/* In preload isolation the folder of the job's pages; "": there is none. */
	char pages_dir[VGPU_PAGES_DIR_BYTES];
	/* Which file the job's ledger is (stat). Another one is refused, whatever is mounted where. */
	uint64_t ledger_device;
	uint64_t ledger_inode;
};

/* One process of the job, in one slot for its whole life. used_bytes[] is the truth; every sum
 * elsewhere can be made again from it. */
struct vgpu_ledger_slot {
	uint32_t state; /* 0 free, 1 live */
	int32_t pid;	/* in the process's own pid namespace */
	uint64_t start_ticks; /* field 22 of /proc/PID/stat: tells a reused pid */
	uint64_t pidns;	      /* inode of its pid namespace: a pid means nothing elsewhere */
	uint32_t step;	      /* index in vgpu_ledger.step */
	uint32_t measuring; /* a bit per device: makes a context there before it is known what one costs */
	uint64_t used_bytes[VGPU_MAX_DEVICES];
	uint64_t image; /* field 28 of /proc/PID/stat: another program runs in the pid after an exec */
	uint32_t has_lock; /* 1: while the process lives it has a lock (account/alive.h) */
	uint32_t reserved[5]; /* so that no two slots share a line of the cache */
	/* The most that its calls in the driver may take now beyond used_bytes (account/locked.h). */
	uint64_t may_take_bytes[VGPU_MAX_DEVICES];
};

/* The figures of use, of the job and of each of its steps: a figure is one line here, and is counted in
 * account/. CONTRIBUTING.md ("A field of the usage report") has the lines that show it. A name says the
 * unit: what ends in _bytes is at most the slice, what does not is a count. */
#define VGPU_LEDGER_FIGURES                    \
	uint64_t used_bytes[VGPU_MAX_DEVICES]; \
	uint64_t peak_bytes[VGPU_MAX_DEVICES]; \
	uint64_t refusals[VGPU_MAX_DEVICES]

struct vgpu_ledger_figures {
	VGPU_LEDGER_FIGURES;
};
#define VGPU_FIGURES (sizeof(struct vgpu_ledger_figures) / (8 * VGPU_MAX_DEVICES))
/* A ledger of VGPU_LEDGER_LEAST has so many; each one more takes so many bytes, in the job and its steps. */
#define VGPU_FIRST_FIGURES 3
#define VGPU_FIGURE_BYTES (8 * VGPU_MAX_DEVICES * (1 + VGPU_MAX_STEPS))

struct vgpu_ledger_step {
	uint32_t in_use;
	uint32_t step_id;
	VGPU_LEDGER_FIGURES;
	uint64_t share_free_at_ns[VGPU_MAX_DEVICES]; /* as in the head, of this step alone */
};

struct vgpu_ledger {
	uint64_t magic;
	uint32_t layout_version;
	uint32_t size_bytes;
	uint32_t job_id;
	uint32_t device_count;
	/* Held for some tens of nanoseconds, never across a driver call. The holder's thread id, 0 when
	 * free, with FUTEX_WAITERS when a thread sleeps on it; a holder that is dead, or the same for
	 * too long, loses it and the sums are made again from the slots. */
	uint32_t lock;
	uint32_t reserved;
	uint64_t lock_pidns;
	uint32_t slots_high; /* slots at and above this index were never used */
	uint32_t measuring;  /* all of the slots' */
	uint64_t lock_turns; /* how often the lock was taken */
	uint64_t reserved2;
	VGPU_LEDGER_FIGURES;
	/* From when on the cap covers what was used (gate/bucket.h). CLOCK_MONOTONIC. */
	uint64_t share_free_at_ns[VGPU_MAX_DEVICES];
	struct vgpu_ledger_step step[VGPU_MAX_STEPS];
	struct vgpu_ledger_slot slot[VGPU_MAX_PROCS];
	/* 1 + the most that the first context of a process of this job cost; 0: not known. */
	uint64_t context_bytes[VGPU_MAX_DEVICES];
};

/* A channel group that computes, by the driver's handles (its open kernel modules have the classes). */
struct vgpu_channel_group {
	uint32_t client;
	uint32_t device;
	uint32_t group;
	uint32_t engine;	  /* NV2080_ENGINE_TYPE_GR0..GR7: 1..8 */
	uint32_t device_instance; /* deviceInstance of NV0080_ALLOC_PARAMETERS: the driver's order of GPUs */
	int32_t fd;		  /* the process's descriptor of that client */
	uint32_t subdevice;	  /* below that device; 0: not seen */
	uint32_t channel_count; /* those beyond VGPU_GROUP_CHANNELS are not listed */
	uint32_t channel[VGPU_GROUP_CHANNELS];
};

/* One process, in the place of its slot in the ledger. */
struct vgpu_groups_process {
	uint64_t start_ticks; /* as in the slot */
	uint64_t pidns;
	int32_t pid; /* in its own pid namespace */
	uint32_t count;
	uint32_t more;	   /* groups that found no room */
	uint32_t sequence; /* odd while it is written */
	struct vgpu_channel_group group[VGPU_MAX_GROUPS];
};

struct vgpu_groups {
	uint64_t magic;
	uint32_t layout_version;
	uint32_t size_bytes;
	uint32_t job_id;
	uint32_t reserved[3];
	struct vgpu_groups_process process[VGPU_MAX_PROCS];
};

/* The figures that vgpud counted for one of the job's slices. Times are CLOCK_MONOTONIC. */
struct vgpu_time_device {
	uint64_t busy_ns;    /* GPU time since the slice was granted */
	uint64_t unknown_ns; /* of the time since: nobody counted */
	uint64_t looked_ns;  /* the last look; 0: none yet */
	int64_t credit_ns;   /* of the latency bucket, or of a cap */
	uint32_t slice_us;   /* time slice of its groups; 0: as the driver has it */
	uint32_t percent;    /* of the GPU over the last half second, times 100 */
	uint32_t frozen;     /* how often its step was frozen */
	uint32_t flags;	     /* VGPU_TIME_… */
	uint32_t killed;     /* how often one was killed */
	uint32_t verdict;    /* what a process of the job was seen to do last: internal/share; 0: nothing */
	uint64_t credit_at_ns; /* when a cap's credit was that; 0: at the last look */
};

struct vgpu_time {
	uint64_t magic;
	uint32_t layout_version;
	uint32_t size_bytes;
	uint32_t job_id;
	uint32_t device_count;
	uint32_t sequence; /* odd while vgpud writes */
	uint32_t reserved;
	uint64_t reserved2[3];
	struct vgpu_time_device device[VGPU_MAX_DEVICES];
};

/* For ever (docs/decisions/node.md). */
_Static_assert(offsetof(struct vgpu_limits, device) == 80, "limits header layout");
_Static_assert(offsetof(struct vgpu_limits, ledger_inode) + 8 == VGPU_LIMITS_LEAST, "limits layout");
_Static_assert(offsetof(struct vgpu_ledger, used_bytes) == 64, "ledger header layout");
_Static_assert(offsetof(struct vgpu_ledger, context_bytes) + 8 * VGPU_MAX_DEVICES ==
		       VGPU_LEDGER_LEAST + (VGPU_FIGURES - VGPU_FIRST_FIGURES) * VGPU_FIGURE_BYTES,
	       "ledger layout");
_Static_assert(sizeof(struct vgpu_groups_process) == 32 + 32 * 96, "groups layout");
_Static_assert(sizeof(struct vgpu_time_device) == 64, "time layout of a device");
_Static_assert(offsetof(struct vgpu_time, device) + 16 * 64 == VGPU_TIME_LEAST, "time layout");
/* The fields behind context_bytes are no figures. */
_Static_assert(sizeof(struct vgpu_ledger) - offsetof(struct vgpu_ledger, context_bytes) < VGPU_FIGURE_BYTES,
	       "ledger's end");
/* Behind the end of a shorter file a mapping reads as zero, up to the end of its page of memory. */
_Static_assert(sizeof(struct vgpu_limits) < 4096, "limits in one page of memory");
_Static_assert(sizeof(struct vgpu_ledger_slot) % 64 == 0 && offsetof(struct vgpu_ledger, slot) % 64 == 0,
	       "two slots share a line of the cache");

#endif
