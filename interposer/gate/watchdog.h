/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The thread that lets go what is held back while the poller cannot, because a call of the driver does not
 * return to it: such a call may wait for just that. It calls nothing of the driver's and looks up no names,
 * so that nothing can keep it waiting. It sleeps as long as the poller does. */
#ifndef VGPU_GATE_WATCHDOG_H
#define VGPU_GATE_WATCHDOG_H

#include "process/process.h"

#include <stdbool.h>

bool vgpu_watchdog_starts(struct vgpu_process *p);

#endif
