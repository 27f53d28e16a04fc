/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The two pages that the root side (Go, internal/ledger) and the interposer (C) share.
 *
 *   limits   one per step; root writes it, the job may only read it. Mapped, so that a changed
 *            limit is seen by running processes at once.
 *   ledger   one per job; the job's user owns and writes it. Root believes nothing in it beyond
 *            a bounded copy: garbage there can harm only the job that wrote it.
 *
 * Sizes and offsets are part of the contract: internal/ledger mirrors them and a test compares.
 * All integers are little-endian; every 64-bit field is read and written atomically. */
#ifndef VGPU_LAYOUT_H
#define VGPU_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* Where a task under strict isolation finds its step's folder (internal/rundir has the same). */
#define VGPU_SELF_DIR "/run/slurm-vgpu/self"
/* In preload isolation the plugin names the folder in the environment. */
#define VGPU_STEP_DIR_ENV "VGPU_STEP_DIR"
#define VGPU_LIMITS_FILE "limits"
#define VGPU_LEDGER_FILE "ledger"

#define VGPU_LAYOUT_VERSION 1u
#define VGPU_LIMITS_MAGIC 0x314d494c55504756ull /* "VGPULIM1" */
#define VGPU_LEDGER_MAGIC 0x314447524c555056ull /* "VPULRGD1" */

#define VGPU_MAX_DEVICES 16
#define VGPU_MAX_STEPS 256
#define VGPU_MAX_PROCS 1024
#define VGPU_UUID_BYTES 64

/* vgpu_limits.flags */
#define VGPU_FAIL_OPEN 1u /* a ledger that cannot be used lets the program run unlimited */
#define VGPU_ELASTIC 2u	  /* --vgpu-policy=elastic */

struct vgpu_limits_device {
	char uuid[VGPU_UUID_BYTES];   /* "GPU-…", NUL-padded */
	uint64_t step_mem_bytes;      /* the step's limit */
	uint64_t job_mem_bytes;	      /* the job's limit; all its steps together */
	uint64_t device_mem_bytes;    /* the whole GPU, as NVML says */
	uint32_t sm_percent;	      /* 0: no cap */
	uint32_t nvml_index;
	uint32_t minor;
	uint32_t reserved[7];
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
};

/* One process of the job, in one slot for its whole life. used_bytes[] is the truth; every sum
 * elsewhere can be made again from it. */
struct vgpu_ledger_slot {
	uint32_t state; /* 0 free, 1 live */
	int32_t pid;	/* in the process's own pid namespace */
	uint64_t start_ticks; /* field 22 of /proc/PID/stat: tells a reused pid */
	uint64_t pidns;	      /* inode of its pid namespace: a pid means nothing elsewhere */
	uint32_t step;	      /* index in vgpu_ledger.step */
	uint32_t reserved0;
	uint64_t used_bytes[VGPU_MAX_DEVICES];
	uint64_t image; /* field 28 of /proc/PID/stat: another program runs in the pid after an exec */
	uint64_t reserved1[3];
};

struct vgpu_ledger_step {
	uint32_t in_use;
	uint32_t step_id;
	uint64_t used_bytes[VGPU_MAX_DEVICES];
	uint64_t peak_bytes[VGPU_MAX_DEVICES];
	uint64_t refusals[VGPU_MAX_DEVICES];
};

struct vgpu_ledger {
	uint64_t magic;
	uint32_t layout_version;
	uint32_t size_bytes;
	uint32_t job_id;
	uint32_t device_count;
	/* Held for some tens of nanoseconds, never across a driver call. The holder's thread id, 0 when
	 * free, with FUTEX_WAITERS when somebody sleeps on it; a holder that is dead, or the same for
	 * too long, loses it and the sums are made again from the slots. */
	uint32_t lock;
	uint32_t lock_waiters; /* not used: the count of somebody killed while waiting would stay */
	uint64_t lock_pidns;
	uint32_t slots_high; /* slots at and above this index were never used */
	uint32_t reserved0;
	uint64_t lock_turns; /* how often the lock was taken */
	uint64_t reserved1;
	uint64_t used_bytes[VGPU_MAX_DEVICES];
	uint64_t peak_bytes[VGPU_MAX_DEVICES];
	uint64_t refusals[VGPU_MAX_DEVICES];
	struct vgpu_ledger_step step[VGPU_MAX_STEPS];
	struct vgpu_ledger_slot slot[VGPU_MAX_PROCS];
};

_Static_assert(sizeof(struct vgpu_limits_device) == 128, "limits device layout");
_Static_assert(offsetof(struct vgpu_limits, device) == 80, "limits header layout");
_Static_assert(sizeof(struct vgpu_limits) == 80 + 16 * 128, "limits layout");
_Static_assert(sizeof(struct vgpu_ledger_slot) == 192, "ledger slot layout");
_Static_assert(sizeof(struct vgpu_ledger_step) == 392, "ledger step layout");
_Static_assert(offsetof(struct vgpu_ledger, used_bytes) == 64, "ledger header layout");
_Static_assert(offsetof(struct vgpu_ledger, step) == 448, "ledger steps");
_Static_assert(offsetof(struct vgpu_ledger, slot) == 448 + 256 * 392, "ledger slots");
_Static_assert(sizeof(struct vgpu_ledger) == 448 + 256 * 392 + 1024 * 192, "ledger layout");

#endif
