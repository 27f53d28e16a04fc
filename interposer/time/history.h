/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How much GPU time the job used in the last seconds, for any process of it that asks, and be it once.
 * Who counts used time leaves a mark in the ledger, at most one in VGPU_MARK_NS: the time when the work
 * began that is counted next, when the work before it had ended, and the sum until then. In between
 * the sum grows evenly, while nothing is at work not at all. */
#ifndef VGPU_TIME_HISTORY_H
#define VGPU_TIME_HISTORY_H

#include "api/layout.h"

#define VGPU_MARK_NS 100000000ull

/* Before work from from_ns on is counted, where so much was counted until idle_since_ns. */
void vgpu_history_note(struct vgpu_history *history, uint64_t from_ns, uint64_t idle_since_ns,
		       uint64_t busy_ns);

/* The part of the time since from_ns that was used, in thousandths; of as much of it as is remembered. The
 * sum is busy_ns now, and the last work that is counted ended at until_ns. */
uint32_t vgpu_history_used(const struct vgpu_history *history, uint64_t from_ns, uint64_t now_ns,
			   uint64_t until_ns, uint64_t busy_ns);

#endif
