/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Why not sacctmgr: it turns the quotes of a JSON text into ` and its letters into lower case before
 * it makes the same call as this. */
#include "admincomment.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>

/* The library's functions, with the types of the headers of this build. */
#define LIBRARY_FUNCTIONS(F)       \
	F(slurm_init)              \
	F(slurm_strerror)          \
	F(slurm_list_create)       \
	F(slurm_list_append)       \
	F(slurm_list_count)        \
	F(slurmdb_connection_get)  \
	F(slurmdb_connection_close) \
	F(slurmdb_connection_commit) \
	F(slurmdb_job_modify)

struct library {
#define F(name) __typeof__(&name) name;
	LIBRARY_FUNCTIONS(F)
#undef F
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

enum vgpu_dbd_result vgpu_dbd_probe(const char *library, char *why, size_t why_size)
{
	struct library lib;
	return load(library, &lib, why, why_size) ? VGPU_DBD_NO_LIBRARY : VGPU_DBD_OK;
}

enum vgpu_dbd_result vgpu_dbd_set_admin_comment(const char *library, uint32_t job, int64_t task, int64_t component,
						char *cluster, char *text, char *why, size_t why_size)
{
	struct library lib;
	if (load(library, &lib, why, why_size))
		return VGPU_DBD_NO_LIBRARY;
	lib.slurm_init(NULL);

	uint16_t flags = 0;
	void *db = lib.slurmdb_connection_get(&flags);
	if (!db) {
		snprintf(why, why_size, "no connection to slurmdbd");
		return VGPU_DBD_NO_DATABASE;
	}

	slurm_selected_step_t step;
	memset(&step, 0, sizeof(step));
	step.array_task_id = task < 0 ? NO_VAL : (uint32_t)task;
	step.het_job_offset = component < 0 ? NO_VAL : (uint32_t)component;
	step.step_id.job_id = job;
	step.step_id.step_id = NO_VAL;
	step.step_id.step_het_comp = NO_VAL;

	slurmdb_job_cond_t cond;
	memset(&cond, 0, sizeof(cond));
	cond.db_flags = SLURMDB_JOB_FLAG_NOTSET; /* 0 would ask for jobs that no scheduler has started */
	cond.flags = JOBCOND_FLAG_NO_DEFAULT_USAGE; /* of any age */
	cond.step_list = lib.slurm_list_create(NULL);
	lib.slurm_list_append(cond.step_list, &step);
	cond.cluster_list = lib.slurm_list_create(NULL);
	lib.slurm_list_append(cond.cluster_list, cluster);

	slurmdb_job_rec_t change;
	memset(&change, 0, sizeof(change));
	change.derived_ec = NO_VAL; /* not to be changed */
	change.admin_comment = text;

	enum vgpu_dbd_result result = VGPU_DBD_OK;
	errno = 0;
	__auto_type changed = lib.slurmdb_job_modify(db, &cond, &change);
	if (!changed) {
		snprintf(why, why_size, "%s", lib.slurm_strerror(errno));
		result = VGPU_DBD_NO_DATABASE;
	} else if (lib.slurm_list_count(changed) == 0) {
		snprintf(why, why_size, "slurmdbd changed nothing");
		result = VGPU_DBD_NOT_MODIFIED;
	} else if (lib.slurmdb_connection_commit(db, 1) != SLURM_SUCCESS) {
		snprintf(why, why_size, "commit: %s", lib.slurm_strerror(errno));
		result = VGPU_DBD_NO_DATABASE;
	}
	lib.slurmdb_connection_close(&db);
	/* The lists are left to the end of the process. */
	return result;
}
