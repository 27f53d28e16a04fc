/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * All that passes between the C and the Go side of the plugin. Plain data of fixed size: C owns
 * every struct, Go fills it in place and keeps no pointer into it. Texts end with NUL; one that
 * would not fit is an error, never cut. */
#ifndef VGPU_PLAN_H
#define VGPU_PLAN_H

#include <stdint.h>

#include "rows.h"

#define VGPU_OPTION_BYTES 1024	/* one option's text as typed */
#define VGPU_WIRE_BYTES 2049	/* a canonical request: request.MaxWireBytes and NUL */
#define VGPU_REASON_BYTES 1024	/* one line for the user */
#define VGPU_PATH_BYTES 512
#define VGPU_VALUE_BYTES 8192	/* an environment variable's value */
#define VGPU_ENV_COUNT 4
#define VGPU_MASK_COUNT 64
#define VGPU_GUARD_COUNT 32
#define VGPU_GRES_BYTES 4096 /* a step's GRES as Slurm prints them */

/* A new job's options (allocator and local contexts). */
struct vgpu_request {
	/* in: texts in the order of the option table; "" is not given */
	char option[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES];
	char fallback[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES]; /* from VGPU_* variables */
	/* out: canonical forms for the job control environment; "" is to be unset */
	char request[VGPU_WIRE_BYTES];
	char defaults[VGPU_WIRE_BYTES];
	char typed[VGPU_WIRE_BYTES]; /* the request in the user's own spelling, for job_submit's messages */
	char error[VGPU_REASON_BYTES]; /* "" or why the options cannot be taken */
	char warning[VGPU_REASON_BYTES]; /* "" or which defaults were left out, and why */
};

/* A step about to start on this node (remote context). */
struct vgpu_step {
	char run_dir[VGPU_PATH_BYTES];
	uint32_t job;
	uint32_t step; /* as in slurm.h */
	uint32_t uid;
	uint32_t gid;
	uint32_t wait_ms; /* how long the prolog may be late; Slurm 22.05 starts steps early */
	char option[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES];
	uint32_t whole_job;	       /* 1: the options are a job's, perhaps of another component */
	char request[VGPU_WIRE_BYTES]; /* of the job, canonical; only for a prolog that slurmd left out */
	uint32_t external;	       /* 1: srun --external-launcher: it has all of its job's GRES */
	uint32_t gres_known;	       /* 1: the controller has told the next two */
	char gres[VGPU_GRES_BYTES];    /* the step's on each node */
	char gres_elsewhere[VGPU_GRES_BYTES]; /* counted otherwise: per step, socket, task */
	char gpus[VGPU_GRES_BYTES];  /* whole GPUs that Slurm gave to the step, in its numbers; "" is none */
	uint32_t all_gpus;	     /* 1: the step has all of its job's */
	char ld_preload[VGPU_VALUE_BYTES]; /* the job's own */
	uint32_t ld_preload_cut;	   /* 1: it was longer than this */
	char apptainer_bind[VGPU_VALUE_BYTES];
	char singularity_bind[VGPU_VALUE_BYTES];
	uint32_t binds_cut;
};

enum vgpu_verdict {
	VGPU_LEAVE = 0, /* not a job of ours: touch nothing */
	VGPU_RUN,	/* carry out the plan */
	VGPU_REFUSE,	/* every task fails with the reason */
};

struct vgpu_env {
	char name[64];
	char value[VGPU_VALUE_BYTES];
};

/* A library of ours over a library of the driver: a guard, or what closes another way to the GPU. */
struct vgpu_guard {
	char driver[VGPU_PATH_BYTES];
	char guard[VGPU_PATH_BYTES];
	char behind[64]; /* the driver's name in the step's folder; "" where another file has it */
};

/* A device file of the step's own, over the node's. */
struct vgpu_own {
	char file[VGPU_PATH_BYTES];
	char node[VGPU_PATH_BYTES];
};

/* A GPU that the step has to itself. */
struct vgpu_whole {
	uint32_t slurm; /* Slurm's number of it */
	uint32_t own;	/* the N of /dev/nvidiaN */
	char visible[64];
};

/* The limits, files and variables for the tasks of one step. Go makes the plan before the first fork, C
 * carries it out after it. */
struct vgpu_plan {
	uint32_t verdict; /* enum vgpu_verdict */
	char reason[VGPU_REASON_BYTES];
	uint32_t env_count;
	struct vgpu_env env[VGPU_ENV_COUNT];
	uint32_t uid, gid; /* the job's */
	uint32_t strict; /* 1: the rest applies, in a mount namespace of the step's own */
	char step_dir[VGPU_PATH_BYTES];
	char preload_file[VGPU_PATH_BYTES]; /* the step's ld.so.preload */
	char pages_dir[VGPU_PATH_BYTES];    /* the job's pages */
	char all_pages[VGPU_PATH_BYTES];    /* the folder of those of all jobs */
	char library[VGPU_PATH_BYTES];	    /* the interposer; "": none, only devices are masked */
	uint32_t deny_userns;		    /* 1: the step makes and enters no user namespace */
	uint32_t guard_count;
	struct vgpu_guard guard[VGPU_GUARD_COUNT];
	uint32_t whole_count; /* GPUs that the step has to itself, or slices of which each task sees one */
	struct vgpu_whole whole[VGPU_MASK_COUNT];
	uint32_t bind_tasks; /* 1: the latter */
	uint32_t own_count; /* GPUs that it may open, where the node's files are closed */
	struct vgpu_own own[VGPU_MASK_COUNT];
	uint32_t mask_count;
	char mask[VGPU_MASK_COUNT][VGPU_PATH_BYTES]; /* device nodes of other GPUs */
	uint32_t foreign_count; /* so many of them, the first, are not the job's either; whole GPUs alone */
};

#endif
