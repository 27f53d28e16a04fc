/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The owners whose files are trusted, also in a user namespace, where owners look like others than they are
 * (docs/decisions/isolation.md#035). */
#ifndef VGPU_PROCESS_TRUST_H
#define VGPU_PROCESS_TRUST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Whether the open file or folder, of which this is the stat, is root's, and no others may write it. */
bool vgpu_trust_roots(int fd, const struct stat *st);

/* Whether a file may be that of the user of this id outside, the job's own if mine. Whether it is the job's
 * says who can open it for writing. */
bool vgpu_trust_users(const struct stat *st, uint32_t uid, bool mine);

/* Whether ids are here what they are outside. */
bool vgpu_trust_same_ids(void);

#endif
