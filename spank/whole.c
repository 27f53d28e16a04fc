/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "whole.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

static const char step_gpus[] = "SLURM_STEP_GPUS";

void vgpu_whole_ask(spank_t sp, struct vgpu_step *step)
{
	/* A batch script, an interactive step and an external launcher have all of their job's. */
	step->all_gpus = step->step >= SLURM_INTERACTIVE_STEP || step->external;
	if (step->all_gpus || spank_getenv(sp, step_gpus, step->gpus, sizeof(step->gpus)) != ESPANK_SUCCESS)
		*step->gpus = '\0';
}

static bool is_among(const char *list, uint32_t number)
{
	while (*list) {
		char *end;
		unsigned long one = strtoul(list, &end, 10);

		if (end == list)
			return false;
		if (one == number)
			return true;
		list = *end == ',' ? end + 1 : end;
	}
	return false;
}

static int how_many(const char *list)
{
	int n = *list ? 1 : 0;

	for (; *list; list++)
		n += *list == ',';
	return n;
}

/* Appends to a list of at most bytes. */
static void append(char *list, size_t bytes, const char *item)
{
	size_t used = strlen(list);
	snprintf(list + used, bytes - used, "%s%s", used ? "," : "", item);
}

static int see(spank_t sp, const char *visible)
{
	if (spank_setenv(sp, "CUDA_VISIBLE_DEVICES", visible, 1) == ESPANK_SUCCESS)
		return 0;
	slurm_spank_log("vgpu: Slurm did not take the task's environment");
	return -1;
}

/* The next slice for the next task of the node. */
static int see_one(spank_t sp, const struct vgpu_plan *plan)
{
	int task;

	if (plan->whole_count == 0 || spank_get_item(sp, S_TASK_ID, &task) != ESPANK_SUCCESS || task < 0)
		return 0;
	return see(sp, plan->whole[task % (int)plan->whole_count].visible);
}

/* Those that Slurm has bound the task to. */
static int see_bound(spank_t sp, const struct vgpu_plan *plan)
{
	/* Of the size of all that a plan can hold. */
	char bound[VGPU_MASK_COUNT * 12] = "", own[sizeof(bound)] = "", visible[VGPU_MASK_COUNT * 64] = "";
	char number[12];

	if (plan->whole_count == 0 || spank_getenv(sp, step_gpus, bound, sizeof(bound)) != ESPANK_SUCCESS)
		return 0;
	/* A task that is bound to as many as the step has is bound to all, whoever wrote the list. */
	int asked = how_many(bound), known = 0;
	bool all = asked >= (int)plan->whole_count;
	for (uint32_t i = 0; i < plan->whole_count && i < VGPU_MASK_COUNT; i++) {
		const struct vgpu_whole *gpu = &plan->whole[i];

		if (!all && !is_among(bound, gpu->slurm))
			continue;
		known++;
		snprintf(number, sizeof(number), "%u", gpu->own);
		append(own, sizeof(own), number);
		append(visible, sizeof(visible), gpu->visible);
	}
	/* With ConstrainDevices Slurm counts a task's own GPUs from 0, as the task sees them. */
	if (!all && known < asked)
		return 0;
	spank_setenv(sp, step_gpus, own, 1);
	return see(sp, visible);
}

int vgpu_whole_bind(spank_t sp, const struct vgpu_plan *plan)
{
	return plan->bind_tasks ? see_one(sp, plan) : see_bound(sp, plan);
}
