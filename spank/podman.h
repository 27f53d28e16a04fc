/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Rootless Podman makes one mount namespace for each user of a node, with its first command, and names in
 * $XDG_RUNTIME_DIR/libpod a process that keeps it for all later ones (podman 4: pkg/rootless). If that was
 * made outside of the step, the step's containers would be outside as well. */
#ifndef VGPU_PODMAN_H
#define VGPU_PODMAN_H

#include <sys/types.h>

#include "plan.h"

/* In the step's mount namespace, as root: gives Podman folders of the step's own wherever it would look for
 * that process. A name that the user has made something else of is left alone. Returns 0, or -1 with a
 * line in why. */
int vgpu_podman_apart(uid_t uid, gid_t gid, char why[VGPU_REASON_BYTES]);

#endif
