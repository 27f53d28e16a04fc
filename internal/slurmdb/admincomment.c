/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Why not sacctmgr: it turns the quotes of a JSON text into ` and its letters into lower case before
 * it makes the same call as this, and it can only mean the newest run of a job. */
#include "admincomment.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>

/* The library's functions, with the types of the headers of this build. */
#define LIBRARY_FUNCTIONS(F)         \
	F(slurm_init)                \
	F(slurm_strerror)            \
	F(slurm_list_create)         \
	F(slurm_list_append)         \
	F(slurm_list_count)          \
	F(slurm_list_iterator_create) \
	F(slurm_list_next)           \
	F(slurmdb_connection_get)    \
	F(slurmdb_connection_close)  \
	F(slurmdb_connection_commit) \
	F(slurmdb_jobs_get)          \
	F(slurmdb_job_modify)

struct library {
#define F(name) __typeof__(&name) name;
	LIBRARY_FUNCTIONS(F)
#undef F
};

struct vgpu_dbd {
	struct library lib;
	void *connection;
};

static int load(const char *path, struct library *lib, char *why, size_t why_size)
{
	/* Global, because Slurm's plugins (auth_munge.so) take the library's symbols from there. */
	void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!handle) {
		snprintf(why, why_size, "%s", dlerror());
		return -1;
	}
#define F(name)                                                                        \
	lib->name = (__typeof__(&name))dlsym(handle, #name);                           \
	if (!lib->name) {                                                              \
		snprintf(why, why_size, "%s has no function %s", path, #name);         \
		return -1;                                                             \
	}
	LIBRARY_FUNCTIONS(F)
#undef F
	return 0;
}

uint32_t vgpu_dbd_built_for(void)
{
	return SLURM_VERSION_NUMBER;
}

/* Since 23.02 (slurmdb.h). */
#define HAS_EXTRA (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0))

bool vgpu_dbd_has_extra(void)
{
	return HAS_EXTRA;
}

/* The text of a record that a field means, NULL where this release has no such field. */
static char **text_of(slurmdb_job_rec_t *job, enum vgpu_dbd_field field)
{
	switch (field) {
	case VGPU_DBD_ADMIN_COMMENT:
		return &job->admin_comment;
	case VGPU_DBD_EXTRA:
#if HAS_EXTRA
		return &job->extra;
#else
		break;
#endif
	}
	return NULL;
}

enum vgpu_dbd_result vgpu_dbd_probe(const char *library, char *why, size_t why_size)
{
	struct library lib;
	return load(library, &lib, why, why_size) ? VGPU_DBD_NO_LIBRARY : VGPU_DBD_OK;
}

void vgpu_dbd_hurry(int descriptors)
{
	const int on = 1;
	for (int fd = 3; fd < descriptors; fd++) { /* fails for what is no TCP connection */
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
	}
}

enum vgpu_dbd_result vgpu_dbd_open(const char *library, struct vgpu_dbd **db, char *why, size_t why_size)
{
	struct vgpu_dbd *opened = calloc(1, sizeof(*opened));
	if (!opened || load(library, &opened->lib, why, why_size)) {
		free(opened);
		return VGPU_DBD_NO_LIBRARY;
	}
	opened->lib.slurm_init(NULL);
	uint16_t flags = 0;
	opened->connection = opened->lib.slurmdb_connection_get(&flags);
	if (!opened->connection) {
		snprintf(why, why_size, "no connection to slurmdbd");
		free(opened);
		return VGPU_DBD_NO_DATABASE;
	}
	*db = opened;
	return VGPU_DBD_OK;
}

void vgpu_dbd_close(struct vgpu_dbd *db)
{
	db->lib.slurmdb_connection_close(&db->connection);
	free(db);
	/* Lists are left to the end of the process. */
}

/* The number under which the database keeps a state of sacct's, with the values of this release. */
static bool state_number(const char *name, char *number, size_t size)
{
	static const struct {
		const char *name;
		uint32_t value;
	} states[] = {
		{"COMPLETED", JOB_COMPLETE}, {"CANCELLED", JOB_CANCELLED}, {"FAILED", JOB_FAILED}, {"TIMEOUT", JOB_TIMEOUT},
		{"NODE_FAIL", JOB_NODE_FAIL}, {"PREEMPTED", JOB_PREEMPTED}, {"BOOT_FAIL", JOB_BOOT_FAIL},
		{"DEADLINE", JOB_DEADLINE}, {"OUT_OF_MEMORY", JOB_OOM}, {"REQUEUED", JOB_REQUEUE}, {"RESIZING", JOB_RESIZING},
		{"REVOKED", JOB_REVOKED},
	};
	size_t length = strcspn(name, " "); /* "CANCELLED by 0" */
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		if (strlen(states[i].name) == length && !strncmp(states[i].name, name, length)) {
			snprintf(number, size, "%u", states[i].value);
			return true;
		}
	}
	return false;
}

/* A condition that selects rows, and its memory. */
struct selection {
	slurm_selected_step_t step;
	char state[16];
	slurmdb_job_cond_t cond;
};

/* A job's rows have no name of their own in this interface. With a list of states, though, slurmdbd takes the
 * two times for those between which a row must have ended (_state_time_string in
 * as_mysql_jobacct_process.c; 22.05). */
static bool select_row(struct library *lib, const struct vgpu_dbd_row *row, struct selection *s)
{
	memset(s, 0, sizeof(*s));
	if (row->end <= 0 || row->submit <= 0 || !state_number(row->state, s->state, sizeof(s->state)))
		return false;
	s->step.array_task_id = row->task < 0 ? NO_VAL : (uint32_t)row->task;
	s->step.het_job_offset = row->component < 0 ? NO_VAL : (uint32_t)row->component;
	s->step.step_id.job_id = row->job;
	s->step.step_id.step_id = NO_VAL;
	s->step.step_id.step_het_comp = NO_VAL;
	s->cond.db_flags = SLURMDB_JOB_FLAG_NOTSET; /* 0 would ask for jobs that no scheduler has started */
	s->cond.flags = JOBCOND_FLAG_NO_DEFAULT_USAGE | JOBCOND_FLAG_NO_TRUNC | JOBCOND_FLAG_NO_STEP |
			JOBCOND_FLAG_DUP | JOBCOND_FLAG_NO_WHOLE_HETJOB;
	s->cond.usage_start = s->cond.usage_end = (time_t)row->end;
	s->cond.step_list = lib->slurm_list_create(NULL);
	lib->slurm_list_append(s->cond.step_list, &s->step);
	s->cond.cluster_list = lib->slurm_list_create(NULL);
	lib->slurm_list_append(s->cond.cluster_list, row->cluster);
	s->cond.state_list = lib->slurm_list_create(NULL);
	lib->slurm_list_append(s->cond.state_list, s->state);
	return true;
}

/* Looks whether the selection is this one row. What is changed is selected by the same words a moment
 * later. */
static enum vgpu_dbd_result look(struct vgpu_dbd *db, const struct vgpu_dbd_row *row, struct selection *s,
				 enum vgpu_dbd_field field, const char *was, const char **is, char *why,
				 size_t why_size)
{
	struct library *lib = &db->lib;
	errno = 0;
	__auto_type found = lib->slurmdb_jobs_get(db->connection, &s->cond);
	if (!found) {
		snprintf(why, why_size, "%s", lib->slurm_strerror(errno));
		return VGPU_DBD_NO_DATABASE;
	}
	if (lib->slurm_list_count(found) != 1) {
		snprintf(why, why_size, "%d rows end then", lib->slurm_list_count(found));
		return VGPU_DBD_NO_ROW;
	}
	slurmdb_job_rec_t *job = lib->slurm_list_next(lib->slurm_list_iterator_create(found));
	if (!job || job->submit != (time_t)row->submit || job->end != (time_t)row->end) {
		snprintf(why, why_size, "the row that ended then is another run's");
		return VGPU_DBD_NO_ROW;
	}
	const char *stands = *text_of(job, field);
	if (!stands)
		stands = "";
	if (strcmp(stands, was)) {
		snprintf(why, why_size, "it was changed meanwhile");
		*is = stands;
		return VGPU_DBD_CHANGED;
	}
	return VGPU_DBD_OK;
}

enum vgpu_dbd_result vgpu_dbd_set_text(struct vgpu_dbd *db, const struct vgpu_dbd_row *row,
				       enum vgpu_dbd_field field, const char *was, char *text,
				       const char **is, char *why, size_t why_size)
{
	struct library *lib = &db->lib;
	struct selection s;
	slurmdb_job_rec_t change;
	memset(&change, 0, sizeof(change));
	change.derived_ec = NO_VAL; /* not to be changed */
	char **changes = text_of(&change, field);
	if (!changes) {
		snprintf(why, why_size, "this release of Slurm has no such field");
		return VGPU_DBD_NO_ROW;
	}
	*changes = text;
	if (!select_row(lib, row, &s)) {
		snprintf(why, why_size, "a row that is %s cannot be named", row->state);
		return VGPU_DBD_NO_ROW;
	}
	enum vgpu_dbd_result result = look(db, row, &s, field, was, is, why, why_size);
	if (result != VGPU_DBD_OK)
		return result;

	errno = 0;
	__auto_type changed = lib->slurmdb_job_modify(db->connection, &s.cond, &change);
	if (!changed) {
		snprintf(why, why_size, "%s", lib->slurm_strerror(errno));
		return VGPU_DBD_NO_DATABASE;
	}
	int rows = lib->slurm_list_count(changed);
	if (rows != 1) {
		snprintf(why, why_size, "slurmdbd would change %d rows", rows);
		lib->slurmdb_connection_commit(db->connection, 0);
		return VGPU_DBD_NOT_MODIFIED;
	}
	if (lib->slurmdb_connection_commit(db->connection, 1) != SLURM_SUCCESS) {
		snprintf(why, why_size, "commit: %s", lib->slurm_strerror(errno));
		return VGPU_DBD_NO_DATABASE;
	}
	return VGPU_DBD_OK;
}
