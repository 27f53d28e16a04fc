/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Threads of ours in the program's process. */
#ifndef VGPU_BASE_THREAD_H
#define VGPU_BASE_THREAD_H

#include <stdbool.h>

/* Starts a detached thread that takes no signals. False when there can be none. */
bool vgpu_thread_start(void *(*run)(void *), void *argument);

#endif
