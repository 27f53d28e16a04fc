/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Tasks of jobs with whole GPUs, by the plugin's own source: no plan of the test host's has such GPUs. */
#include "whole.c"

#include "host.h"

/* The prolog chose GPUs 2, 5 and 7 where Slurm has 0, 1 and 2. */
static struct vgpu_plan plan = {
	.whole_count = 3,
	.whole = {{.slurm = 0, .own = 2, .visible = "GPU-c"},
		  {.slurm = 1, .own = 5, .visible = "GPU-f"},
		  {.slurm = 2, .own = 7, .visible = "GPU-h"}},
};

/* bound is what Slurm has bound the task to; the rest is what the task has then. */
static void binds(const char *bound, const char *gpus, const char *visible)
{
	set_job_env("SLURM_STEP_GPUS", bound);
	set_job_env("CUDA_VISIBLE_DEVICES", "as it was");
	CHECK(vgpu_whole_bind(NULL, &plan) == 0);
	SAME(job_env("SLURM_STEP_GPUS"), gpus);
	SAME(job_env("CUDA_VISIBLE_DEVICES"), visible);
}

static void a_task_sees_the_gpus_that_it_is_bound_to(void)
{
	binds("1", "5", "GPU-f");
	binds("2,0", "2,7", "GPU-c,GPU-h");
	binds("0,1,2", "2,5,7", "GPU-c,GPU-f,GPU-h");
	binds("8,9,10", "2,5,7", "GPU-c,GPU-f,GPU-h"); /* all, whoever wrote the list */
	binds("9", "9", "as it was");
	binds("1,9", "1,9", "as it was");
	static const struct vgpu_plan none;
	CHECK(vgpu_whole_bind(NULL, &none) == 0);
	SAME(job_env("SLURM_STEP_GPUS"), "1,9");
	host.failing_env = "CUDA_VISIBLE_DEVICES";
	set_job_env("SLURM_STEP_GPUS", "1");
	CHECK(vgpu_whole_bind(NULL, &plan) == -1);
	LOGGED("Slurm did not take the task's environment");
}

static void each_task_sees_one_slice(void)
{
	plan.bind_tasks = 1;
	host.task = 4;
	binds("0,1", "0,1", "GPU-f");
}

const struct test_case whole_cases[] = {
	{"a task sees the GPUs that it is bound to", a_task_sees_the_gpus_that_it_is_bound_to, false},
	{"each task sees one slice", each_task_sees_one_slice, false},
	{0},
};
