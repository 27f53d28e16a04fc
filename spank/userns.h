/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef VGPU_USERNS_H
#define VGPU_USERNS_H

#include "plan.h"

/* vgpu_userns_deny, called by root: from now on neither this process, in any of its threads, nor what it
 * starts can make or enter a user namespace. It cannot be taken back. Programs with set-user-ID stay what
 * they are. Returns 0, or -1 with one line in why. */
int vgpu_userns_deny(char why[VGPU_REASON_BYTES]);

#endif
