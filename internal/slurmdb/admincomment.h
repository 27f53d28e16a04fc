/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef VGPU_ADMINCOMMENT_H
#define VGPU_ADMINCOMMENT_H

#include <stddef.h>
#include <stdint.h>

enum vgpu_dbd_result {
	VGPU_DBD_OK = 0,
	VGPU_DBD_NO_LIBRARY, /* it cannot be loaded, or lacks a function */
	VGPU_DBD_NO_DATABASE,
	VGPU_DBD_NOT_MODIFIED, /* no such job, or no right to change it */
};

/* Sets the AdminComment of the newest run of one job. task and component are -1 for a job that is
 * neither a task of an array nor a component of a heterogeneous job. Why it did not work is put
 * into why[]. Slurm's library prints to stderr and calls exit() for a bad slurm.conf: call this in a
 * process that may end. */
enum vgpu_dbd_result vgpu_dbd_set_admin_comment(const char *library, uint32_t job, int64_t task, int64_t component,
						char *cluster, char *text, char *why, size_t why_size);

/* The Slurm release of the headers of this build, 0x160508 for 22.05.8. The structures that go to the
 * library have another shape in every major and minor release, and the library does not say which it
 * is: the caller must have made sure. */
uint32_t vgpu_dbd_built_for(void);

/* Says whether the library could be loaded. */
enum vgpu_dbd_result vgpu_dbd_probe(const char *library, char *why, size_t why_size);

#endif
