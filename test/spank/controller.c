/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The controller, as far as the plugin asks it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

#include "host.h"

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
#define TRES_OF_A_STEP tres_fmt_alloc_str
#elif SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 0, 0)
#define TRES_OF_A_STEP tres_alloc_str
#endif

static job_step_info_t records[4];
static uint32_t count;

void controller_tells(const char *per_node, const char *node, const char *per_task)
{
	records[count++] = (job_step_info_t){.tres_per_node = (char *)per_node,
					     .nodes = (char *)node,
					     .tres_per_task = (char *)per_task,
					     .num_cpus = 1};
#ifdef TRES_OF_A_STEP
	records[count - 1].TRES_OF_A_STEP = "cpu=1,mem=0,node=1";
#endif
}

void controller_tells_of_a_launcher(void) { records[count++] = (job_step_info_t){.nodes = "n1"}; }

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
int slurm_get_job_steps(slurm_step_id_t *id, job_step_info_response_msg_t **answer, uint16_t flags)
{
	uint32_t job = id->job_id, step = id->step_id;
#else
int slurm_get_job_steps(time_t since, uint32_t job, uint32_t step, job_step_info_response_msg_t **answer,
			uint16_t flags)
{
	CHECK(since == 0);
#endif
	CHECK(flags & SHOW_LOCAL);
	if (host.controller_is_down) {
		errno = ETIMEDOUT;
		return SLURM_ERROR;
	}
	if (count == 0)
		controller_tells("gres:vgpu:2,gres:gpumem:6000", "n1", NULL);
	for (uint32_t i = 0; i < count; i++) {
		records[i].step_id.job_id = job;
		records[i].step_id.step_id = host.step;
		records[i].step_id.step_het_comp = count > 1 ? i : NO_VAL;
	}
	CHECK(step == host.step || (step == NO_VAL && count > 1));
	*answer = calloc(1, sizeof(**answer));
	host.answers++;
	(*answer)->job_step_count = step == NO_VAL ? count : 1; /* so does 22.05 */
	(*answer)->job_steps = records;
	host.controller_is_down = host.controller_goes_down;
	return SLURM_SUCCESS;
}

void slurm_free_job_step_info_response_msg(job_step_info_response_msg_t *answer)
{
	host.answers--;
	free(answer);
}

char *slurm_strerror(int error) { return strerror(error); }

/* One node is list enough. */
__typeof__(slurm_hostlist_create(NULL)) slurm_hostlist_create(const char *text)
{
	return (__typeof__(slurm_hostlist_create(NULL)))text;
}

int slurm_hostlist_find(__typeof__(slurm_hostlist_create(NULL)) list, const char *name)
{
	return strcmp((const char *)list, name) == 0 ? 0 : -1;
}

void slurm_hostlist_destroy(__typeof__(slurm_hostlist_create(NULL)) list) { (void)list; }
