/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a handle for another process says: in an IPC handle, or in the file of a descriptor. */
#ifndef SIMGPU_DRV_SHARE_H
#define SIMGPU_DRV_SHARE_H

#include "drv.h"

struct shared {
	uint64_t magic;
	int32_t pid;
	int32_t device; /* in sim_conf */
	uint64_t start_ticks;
	uint64_t at; /* an address or a handle, in the owner */
	uint64_t bytes;
};

struct shared drv_share(int device, uint64_t at, uint64_t bytes);
bool drv_share_is_ours(const struct shared *shared);
bool drv_share_lives(const struct shared *shared);

/* A descriptor of a file with that content, or -1. */
int drv_share_file(const void *content, size_t bytes);

/* drv_descriptor.c, with the lock held: the memory is kept while the file is open, by one mapping more, or
 * when the block is freed, which it is then asked for. Looks for closed ones. */
void drv_descriptor_given(int fd, struct sim_vmm *vmm, CUdeviceptr base);
bool drv_descriptor_keeps(CUdeviceptr base, int device, uint64_t bytes);
void drv_descriptor_look(void);

/* Memory of another process, by its address or handle here, is this one's once the other one has ended:
 * noted when it is opened, looked for, and given back when it is closed. With the lock held. */
void drv_share_opened(uint64_t at, const struct shared *owner);
void drv_share_look(void);
void drv_share_closed(uint64_t at);

/* Memory of another process at an address of its own; with the lock held. */
struct sim_block *drv_share_open(int device, int ordinal, uint64_t bytes, CUcontext ctx);

#endif
