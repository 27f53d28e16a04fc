/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef VGPU_ADMINCOMMENT_H
#define VGPU_ADMINCOMMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vgpu_dbd_result {
	VGPU_DBD_OK = 0,
	VGPU_DBD_NO_LIBRARY, /* it cannot be loaded, or lacks a function */
	VGPU_DBD_NO_DATABASE,
	VGPU_DBD_NO_ROW,  /* no row of that run, or not one alone */
	VGPU_DBD_CHANGED, /* the row's text is another one by now */
	VGPU_DBD_NOT_MODIFIED,
};

/* One row of the job table: one run of one job. task and component are -1 for a job that is neither a task of
 * an array nor a component of a heterogeneous job. state is what sacct prints. */
struct vgpu_dbd_row {
	uint32_t job;
	int64_t task, component;
	char *cluster;
	const char *state;
	int64_t submit, end; /* seconds since 1970 */
};

/* A connection to slurmdbd. Slurm's library prints to stderr and calls exit() for a bad slurm.conf: use it in
 * a process that may end. Why something did not work is put into why[]. */
struct vgpu_dbd;
enum vgpu_dbd_result vgpu_dbd_open(const char *library, struct vgpu_dbd **db, char *why, size_t why_size);
void vgpu_dbd_close(struct vgpu_dbd *db);

/* Sends what TCP holds back, on every connection among the first descriptors. Both ends of this one send a
 * message as its length and then the rest, which TCP keeps until the length is acknowledged, which takes 40
 * ms: 80 for a question and its answer. The library has no call for that and does not show its socket. */
void vgpu_dbd_hurry(int descriptors);

/* The texts of a row that can be changed. */
enum vgpu_dbd_field {
	VGPU_DBD_ADMIN_COMMENT,
	VGPU_DBD_EXTRA,
};

/* Says whether the Slurm release of the headers of this build has the field Extra. */
bool vgpu_dbd_has_extra(void);

/* Changes a text of one row, and of no other, from was to text. If it is another one by now, that is returned
 * in *is, which lasts until the connection is closed. */
enum vgpu_dbd_result vgpu_dbd_set_text(struct vgpu_dbd *db, const struct vgpu_dbd_row *row,
				       enum vgpu_dbd_field field, const char *was, char *text,
				       const char **is, char *why, size_t why_size);

/* The Slurm release of the headers of this build, 0x160508 for 22.05.8. The structures that go to the
 * library have another shape in every major and minor release, and the library does not say which it
 * is: the caller must have made sure. */
uint32_t vgpu_dbd_built_for(void);

/* Says whether the library could be loaded. */
enum vgpu_dbd_result vgpu_dbd_probe(const char *library, char *why, size_t why_size);

#endif
