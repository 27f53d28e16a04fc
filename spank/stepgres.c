/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "stepgres.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>

/* slurm_get_job_steps up to 25.05, and as slurm.h of 26.05 has it. */
typedef int by_numbers(time_t, uint32_t, uint32_t, job_step_info_response_msg_t **, uint16_t);
typedef int by_id(slurm_step_id_t *, job_step_info_response_msg_t **, uint16_t);

static int ask(uint32_t job, uint32_t step, job_step_info_response_msg_t **answer)
{
	void (*call)(void) = (void (*)(void))slurm_get_job_steps;
	slurm_step_id_t id = {.job_id = job, .step_id = step, .step_het_comp = NO_VAL};

	if (__builtin_types_compatible_p(__typeof__(slurm_get_job_steps), by_id))
		return ((by_id *)call)(&id, answer, SHOW_ALL | SHOW_LOCAL);
	return ((by_numbers *)call)(0, job, step, answer, SHOW_ALL | SHOW_LOCAL);
}

static bool is_on(const job_step_info_t *step, const char *node)
{
	__auto_type nodes = slurm_hostlist_create(step->nodes); /* its type has another name since 23.11 */
	bool found = nodes && node && slurm_hostlist_find(nodes, node) >= 0;
	if (nodes)
		slurm_hostlist_destroy(nodes);
	return found;
}

/* The record of the step on this node: a step that has components within one job has one for each,
 * and only for these it matters which. */
static const job_step_info_t *on_node(const job_step_info_response_msg_t *answer,
				      const struct vgpu_step *step, const char *node)
{
	const job_step_info_t *found = NULL;

	for (uint32_t i = 0; i < answer->job_step_count; i++) {
		const job_step_info_t *one = &answer->job_steps[i];
		if (one->step_id.job_id != step->job || one->step_id.step_id != step->step ||
		    (one->step_id.step_het_comp != NO_VAL && !is_on(one, node)))
			continue;
		if (found)
			return NULL;
		found = one;
	}
	return found;
}

/* The answer in which the step's record is: asked for one step, 22.05 tells its first component only. */
static const job_step_info_t *find_on_node(const struct vgpu_step *step, const char *node,
				   job_step_info_response_msg_t **answer)
{
	if (ask(step->job, step->step, answer) != SLURM_SUCCESS || !*answer)
		return NULL;
	const job_step_info_t *one = on_node(*answer, step, node);
	if (one || (*answer)->job_step_count == 0)
		return one;
	slurm_free_job_step_info_response_msg(*answer);
	*answer = NULL;
	if (ask(step->job, NO_VAL, answer) != SLURM_SUCCESS || !*answer)
		return NULL;
	return on_node(*answer, step, node);
}

/* The TRES of a step, as text. The member's name in 24.11 and before is not that in 26.05; what it is in
 * between was not seen, and is not asked there. */
static const char *tres_of(const job_step_info_t *step)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
	return step->tres_fmt_alloc_str;
#elif SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 0, 0)
	return step->tres_alloc_str;
#else
	(void)step;
	return NULL;
#endif
}

/* Whether it is a step of srun --external-launcher, for the launcher of an MPI: it has no CPU and no TRES of
 * its own, whatever its options are, and may use all of its job's (seen on 24.11.5). No other step has no
 * CPU, and this reads nothing that a user can write. */
static bool is_external_launcher(const job_step_info_t *step)
{
	const char *tres = tres_of(step);

	return step->num_cpus == 0 && (!tres || !*tres);
}

static const char *or_empty(const char *text) { return text ? text : ""; }

void vgpu_stepgres_ask(struct vgpu_step *step, const char *node)
{
	job_step_info_response_msg_t *answer = NULL;

	step->gres_known = step->external = 0;
	const job_step_info_t *one = find_on_node(step, node, &answer);
	if (one && is_external_launcher(one)) {
		step->external = 1;
	} else if (one) {
		int here = snprintf(step->gres, sizeof(step->gres), "%s", or_empty(one->tres_per_node));
		int elsewhere = snprintf(step->gres_elsewhere, sizeof(step->gres_elsewhere), "%s,%s,%s",
					 or_empty(one->tres_per_step), or_empty(one->tres_per_socket),
					 or_empty(one->tres_per_task));
		step->gres_known =
			here < (int)sizeof(step->gres) && elsewhere < (int)sizeof(step->gres_elsewhere);
	}
	if (!step->gres_known && !step->external)
		slurm_error("vgpu: the controller does not tell the GRES of step %u.%u, which gets its job's "
			    "slice: %s",
			    step->job, step->step,
			    answer ? "its answer is of no use" : slurm_strerror(errno));
	if (answer)
		slurm_free_job_step_info_response_msg(answer);
}
