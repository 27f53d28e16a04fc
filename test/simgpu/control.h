/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The node's control device, where simgpu-control runs (control/): what the simulated libraries ask it
 * beyond the driver's own calls. control/simulated.go has the same structures. */
#ifndef SIMGPU_CONTROL_H
#define SIMGPU_CONTROL_H

#include <stdint.h>
#include <sys/ioctl.h>

struct sim_submit {
	uint32_t client, channel;
	uint64_t ns;
	uint64_t ticket; /* out */
};

#define SIM_MOST_ENDS 62

/* Kernels that have ended, by the numbers that their submission gave. */
struct sim_ends {
	uint32_t count, reserved;
	struct {
		uint64_t ticket, ns; /* and when */
	} end[SIM_MOST_ENDS];
};

struct sim_bucket_use {
	uint32_t device;
	int32_t pid; /* 0: all */
	uint64_t number;
	uint64_t busy_ns; /* out */
};

struct sim_active {
	uint32_t device;
	int32_t pid;
	uint64_t active_ns, at_ns; /* out: where GPM's counter stands, and since when */
	uint64_t busy_ns;	   /* out: of the process */
};

struct sim_where {
	uint32_t device;
	uint32_t instance; /* out: the driver's number */
};

#define SIM_SUBMIT _IOWR('S', 1, struct sim_submit)
#define SIM_WAIT _IOWR('S', 2, struct sim_ends)
#define SIM_BUCKET _IOWR('S', 3, struct sim_bucket_use)
#define SIM_ACTIVE _IOWR('S', 4, struct sim_active)
#define SIM_WHERE _IOWR('S', 5, struct sim_where)

/* A descriptor of it; -1: there is none, -2: there is one that cannot be opened. */
int sim_control_open(void);
/* One for questions, which stays open; below 0: there is none. */
int sim_control(void);

#endif
