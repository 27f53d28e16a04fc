/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the controller says that a step was given, and what becomes of it. */
#include <stdlib.h>

#include "host.h"

static void a_step_has_the_gres_that_the_controller_tells(void)
{
	grant(5, "preload", NULL);
	controller_tells("gres:vgpu:1,gres:gpumem:1000", "n1", "cpu:1");
	loaded = start_step(5, 3);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(step_mem_bytes("3") == 1000ull << 20);
	SAME(job_env("CUDA_VISIBLE_DEVICES"), "GPU-11111111-aaaa");
	CHECK(host.answers == 0);
	SAME(host.log, "");
}

static void each_component_of_a_step_has_its_own_gres(void)
{
	grant(5, "preload", NULL);
	setenv("SLURMD_NODENAME", "n2", 1);
	controller_tells("gres:gpumem:1000", "n1", NULL);
	controller_tells("gres:gpumem:2000", "n2", NULL);
	loaded = start_step(5, 3);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(step_mem_bytes("3") == 2000ull << 20);
	CHECK(host.answers == 0);
}

static void a_step_without_gres_sees_no_gpu(void)
{
	grant(5, "preload", NULL);
	controller_tells(NULL, "n1", NULL);
	loaded = start_step(5, 3);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(job_env("CUDA_VISIBLE_DEVICES"), "");
	CHECK(step_mem_bytes("3") == 0);
}

static void a_step_of_no_slices_sees_no_gpu(void)
{
	grant(5, "preload", NULL);
	controller_tells("gres:vgpu:0", "n1", NULL);
	loaded = start_step(5, 3);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(job_env("CUDA_VISIBLE_DEVICES"), "");
	CHECK(step_mem_bytes("3") == 0);
}

static void a_default_of_the_environment_changes_no_gres(void)
{
	grant(5, "preload", NULL);
	controller_tells("gres:vgpu:1,gres:gpumem:1000", "n1", NULL);
	set_job_env("VGPU_MEM", "10%");
	setenv("VGPU_MEM", "10%", 1);
	loaded = start_step(5, 3);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(step_mem_bytes("3") == 1000ull << 20);
}

static void an_external_launcher_has_what_its_job_has(void)
{
	grant(5, "preload", NULL);
	controller_tells_of_a_launcher();
	loaded = start_step(5, 3);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(step_mem_bytes("3") == 3000ull << 20);
	SAME(host.log, "");
}

/* The mark is the controller's, and none of the environment. */
static void who_calls_itself_a_launcher_is_none(void)
{
	grant(5, "preload", NULL);
	controller_tells(NULL, "n1", NULL);
	set_job_env("SLURM_EXTERNAL_LAUNCHER", "1");
	loaded = start_step(5, 3);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(job_env("CUDA_VISIBLE_DEVICES"), "");
	CHECK(step_mem_bytes("3") == 0);
}

static void slices_are_counted_per_node_only(void)
{
	grant(5, "preload", NULL);
	controller_tells("gres/vgpu:1", "n1", "gres/gpumem:1000");
	loaded = start_step(5, 3);
	check_refused("vgpu: vgpu, gpumem and gpucores are counted per node only: use --gres=vgpu:N on srun");
}

static void a_controller_that_does_not_answer_costs_no_step(void)
{
	grant(5, "preload", NULL);
	loaded = start_step(5, 3);
	host.controller_is_down = true;
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	LOGGED("error: vgpu: the controller does not tell the GRES of step 5.3, which gets its job's "
	       "slice: ");
	CHECK(step_mem_bytes("3") == 3000ull << 20);
}

/* In the first answer there is only the component on the other node. */
static void a_controller_that_goes_down_between_two_answers_costs_no_step(void)
{
	grant(5, "preload", NULL);
	setenv("SLURMD_NODENAME", "n2", 1);
	controller_tells("gres:gpumem:1000", "n1", NULL);
	controller_tells("gres:gpumem:2000", "n2", NULL);
	loaded = start_step(5, 3);
	host.controller_goes_down = true;
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	LOGGED("step 5.3, which gets its job's slice: Connection timed out");
	CHECK(step_mem_bytes("3") == 3000ull << 20);
}

const struct test_case stepgres_cases[] = {
	{"a step has the GRES that the controller tells", a_step_has_the_gres_that_the_controller_tells, false},
	{"each component of a step has its own GRES", each_component_of_a_step_has_its_own_gres, false},
	{"a step without GRES sees no GPU", a_step_without_gres_sees_no_gpu, false},
	{"a step of no slices sees no GPU", a_step_of_no_slices_sees_no_gpu, false},
	{"a default of the environment changes no GRES", a_default_of_the_environment_changes_no_gres, false},
	{"an external launcher has what its job has", an_external_launcher_has_what_its_job_has, false},
	{"who calls itself a launcher is none", who_calls_itself_a_launcher_is_none, false},
	{"slices are counted per node only", slices_are_counted_per_node_only, false},
	{"a controller that does not answer costs no step", a_controller_that_does_not_answer_costs_no_step, false},
	{"a controller that goes down between two answers costs no step",
	 a_controller_that_goes_down_between_two_answers_costs_no_step, false},
	{0},
};
