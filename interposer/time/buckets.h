/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The last milliseconds of a device in short buckets, in the ledger: how much of each the job's
 * processes have counted. Processes of one job take turns on a GPU, by the driver's time slices, so
 * what they use adds up; but whoever waits for another's time slice cannot tell that from its own
 * work. So they add up to the length of a bucket at most. There is no lock, and a process that is
 * killed leaves nothing to repair. */
#ifndef VGPU_TIME_BUCKETS_H
#define VGPU_TIME_BUCKETS_H

#include "api/layout.h"

#define VGPU_BUCKET_NS 65536ull

/* Counts so much of the time between two times, the earliest first. Returns how much there was that nobody
 * has counted. Longer ago than there are buckets nobody knows what was counted. */
uint64_t vgpu_buckets_count(struct vgpu_buckets *buckets, uint64_t from_ns, uint64_t to_ns, uint64_t ns,
			    uint64_t now_ns);

#endif
