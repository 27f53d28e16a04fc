/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * sbatch, salloc and srun: the plugin in a user's process. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "plan.h"

static struct plugin start(spank_context_t context)
{
	struct plugin p = load();
	host.context = context;
	CHECK(p.init(NULL, 0, NULL) == 0);
	CHECK(host.options == VGPU_OPTION_COUNT);
	return p;
}

static void options_reach_the_job(void)
{
	struct plugin p = start(S_CTX_ALLOCATOR);
	CHECK(give("vgpu-mem", "8G", 0) == 0);	 /* #SBATCH */
	CHECK(give("vgpu-mem", "3000", 0) == 0); /* command line: the last one wins */
	CHECK(give("vgpu-cores", "30", 0) == 0);
	CHECK(give("vgpu-priority", "latency", 0) == 0);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	SAME(control_env("VGPU_REQUEST"), "mem=3000;cores=30;priority=latency");
	SAME(control_env("VGPU_DEFAULTS"), NULL);
	SAME(host.log, "");
	/* Slurm hands over garbage here in sbatch and salloc. */
	CHECK(p.exit((spank_t)0x1, 0, NULL) == 0);
}

static void a_bad_option_is_refused(void)
{
	static const char *const bad[] = {"abc", "-5", "0", "3T", "", "9999999999999999999999"};
	start(S_CTX_ALLOCATOR);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		*host.log = '\0';
		CHECK(give("vgpu-mem", bad[i], 0) == -1);
		LOGGED("error: vgpu: --vgpu-mem=");
		CHECK(strchr(host.log, '\n') == strrchr(host.log, '\n'));
	}
	CHECK(give("vgpu-mem", NULL, 0) == -1);
	char digits[5000];
	memset(digits, '9', sizeof(digits));
	digits[sizeof(digits) - 1] = '\0';
	*host.log = '\0';
	CHECK(give("vgpu-mem", digits, 0) == -1);
	LOGGED("--vgpu-mem: the value is longer than 1023 characters");
	CHECK(give("vgpu-cores", "101", 0) == -1);
	CHECK(give("vgpu-place", "here", 0) == -1);
	CHECK(give("vgpu-priority", "high", 0) == -1);
}

static void variables_are_defaults(void)
{
	setenv("VGPU_MEM", "2G", 1);
	setenv("VGPU_PLACE", "spread", 1);
	struct plugin p = start(S_CTX_ALLOCATOR);
	CHECK(give("vgpu-cores", "30", 0) == 0);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	SAME(control_env("VGPU_REQUEST"), "cores=30");
	SAME(control_env("VGPU_DEFAULTS"), "mem=2048;place=spread");
}

static void a_bad_variable_is_named_and_left_out(void)
{
	setenv("VGPU_MEM", "3T", 1);
	struct plugin p = start(S_CTX_LOCAL);
	setenv("VGPU_PLACE", "spread", 1);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	LOGGED("vgpu: left out: VGPU_MEM=3T: want ");
	SAME(control_env("VGPU_DEFAULTS"), "place=spread");
	CHECK(give("vgpu-mem", "3000", 0) == 0); /* then the variable has no effect */
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	SAME(control_env("VGPU_REQUEST"), "mem=3000");
}

static void live_in_a_job(void)
{
	setenv("SLURM_JOB_ID", "7", 1);
	setenv("SLURM_SPANK__SLURM_SPANK_OPTION_vgpu_vgpu_mem", "3000", 1);
	setenv("_SLURM_SPANK_OPTION_vgpu_vgpu_mem", "3000", 1);
	setenv("SLURM_SPANK_VGPU_REQUEST", "mem=3000", 1);
	setenv("SLURM_SPANK_VGPU_DEFAULTS", "place=pack", 1);
	setenv("SLURM_SPANK_OTHER", "kept", 1);
	setenv("VGPU_STEP_DIR", "/run/slurm-vgpu/jobs/7/steps/batch", 1);
	setenv("CUDA_VISIBLE_DEVICES", "GPU-1", 1);
	setenv("LD_PRELOAD", "/usr/lib/slurm-vgpu/libslurm-vgpu.so:/opt/other.so", 1);
	setenv("APPTAINER_BIND", "/run/slurm-vgpu/self,/etc/ld.so.preload,/data", 1);
	setenv("SINGULARITY_BIND", "/run/slurm-vgpu/self,/etc/ld.so.preload", 1);
	/* srun has these from the variables above before it loads any plugin. */
	set_control_env("_SLURM_SPANK_OPTION_vgpu_vgpu_mem", "3000");
	set_control_env("VGPU_REQUEST", "mem=3000");
}

static void check_nothing_inherited(void)
{
	SAME(getenv("SLURM_SPANK__SLURM_SPANK_OPTION_vgpu_vgpu_mem"), NULL);
	SAME(getenv("_SLURM_SPANK_OPTION_vgpu_vgpu_mem"), NULL);
	SAME(getenv("SLURM_SPANK_VGPU_REQUEST"), NULL);
	SAME(getenv("SLURM_SPANK_VGPU_DEFAULTS"), NULL);
	SAME(getenv("SLURM_SPANK_OTHER"), "kept");
	SAME(getenv("VGPU_STEP_DIR"), NULL);
	SAME(getenv("CUDA_VISIBLE_DEVICES"), NULL);
	SAME(getenv("LD_PRELOAD"), "/opt/other.so");
	SAME(getenv("APPTAINER_BIND"), "/data");
	SAME(getenv("SINGULARITY_BIND"), NULL);
}

static void a_job_from_inside_a_job_inherits_nothing(void)
{
	live_in_a_job();
	struct plugin p = start(S_CTX_ALLOCATOR);
	check_nothing_inherited();
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	SAME(control_env("VGPU_REQUEST"), NULL);
}

/* A list of so many bytes that ends with the interposer. */
static char *preloads(size_t bytes)
{
	static const char ours[] = ":/usr/lib/slurm-vgpu/libslurm-vgpu.so";
	char *list = calloc(1, bytes + 1);

	memset(list, 'x', bytes);
	memcpy(list + bytes - (sizeof(ours) - 1), ours, sizeof(ours) - 1);
	return list;
}

static void what_is_preloaded_is_inherited_whole_or_without_the_interposer(void)
{
	char *longest = preloads(VGPU_VALUE_BYTES - 1), *longer = preloads(VGPU_VALUE_BYTES);

	live_in_a_job();
	setenv("LD_PRELOAD", longer, 1);
	struct plugin p = start(S_CTX_ALLOCATOR);
	SAME(getenv("LD_PRELOAD"), longer);
	live_in_a_job();
	setenv("LD_PRELOAD", longest, 1);
	CHECK(p.init(NULL, 0, NULL) == 0);
	CHECK(strspn(getenv("LD_PRELOAD"), "x") == strlen(getenv("LD_PRELOAD")));
	live_in_a_job();
	setenv("LD_PRELOAD", "/usr/lib/slurm-vgpu/libslurm-vgpu.so", 1);
	CHECK(p.init(NULL, 0, NULL) == 0);
	SAME(getenv("LD_PRELOAD"), NULL);
}

static void an_srun_that_allocates_inherits_nothing(void)
{
	live_in_a_job();
	unsetenv("SLURM_JOB_ID");
	struct plugin p = start(S_CTX_LOCAL);
	check_nothing_inherited();
	CHECK(give("vgpu-cores", "10", 0) == 0);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	SAME(control_env("VGPU_REQUEST"), "cores=10");
	SAME(control_env("_SLURM_SPANK_OPTION_vgpu_vgpu_mem"), NULL);
}

static void a_step_keeps_the_options_of_its_job(void)
{
	live_in_a_job();
	setenv("VGPU_MEM", "garbage", 1); /* read for jobs, not for steps */
	struct plugin p = start(S_CTX_LOCAL);
	SAME(getenv("SLURM_SPANK__SLURM_SPANK_OPTION_vgpu_vgpu_mem"), "3000");
	SAME(getenv("VGPU_STEP_DIR"), "/run/slurm-vgpu/jobs/7/steps/batch");
	CHECK(give("vgpu-mem", "3000", 0) == 0); /* Slurm, from the environment */
	CHECK(give("vgpu-mem", "x", 0) == -1);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(host.control_calls == 0);
}

/* As Slurm does for every option that was ever found, right before init_post_opt. */
static void carry(const char *variable, const char *text)
{
	setenv(variable, text, 1);
	set_control_env(variable, text);
}

static void each_component_has_its_own_options(void)
{
	struct plugin p = start(S_CTX_ALLOCATOR);
	CHECK(give("vgpu-mem", "1G", 0) == 0 && give("vgpu-cores", "20", 0) == 0);
	carry("_SLURM_SPANK_OPTION_vgpu_vgpu_mem", "1G");
	carry("_SLURM_SPANK_OPTION_vgpu_vgpu_cores", "20");
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	SAME(control_env("VGPU_REQUEST"), "mem=1024;cores=20");
	SAME(control_env("VGPU_TYPED"), "mem=1G;cores=20");
	SAME(control_env("_SLURM_SPANK_OPTION_vgpu_vgpu_mem"), NULL);
	SAME(getenv("_SLURM_SPANK_OPTION_vgpu_vgpu_mem"), NULL);
	SAME(getenv("SLURM_VGPU_WHOLE_JOB"), NULL); /* its steps start on their own */
	CHECK(give("vgpu-mem", "3000", 0) == 0);
	carry("_SLURM_SPANK_OPTION_vgpu_vgpu_cores", "20");
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	SAME(control_env("VGPU_REQUEST"), "mem=3000");
	SAME(control_env("_SLURM_SPANK_OPTION_vgpu_vgpu_cores"), NULL);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	SAME(control_env("VGPU_REQUEST"), NULL);
	SAME(control_env("VGPU_TYPED"), NULL);
}

static void an_srun_that_allocates_says_so_to_its_steps(void)
{
	struct plugin p = start(S_CTX_LOCAL);
	CHECK(give("vgpu-mem", "1G", 0) == 0);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	SAME(getenv("SLURM_VGPU_WHOLE_JOB"), "1");
}

static void components_of_a_step_must_agree(void)
{
	live_in_a_job();
	setenv("SLURM_VGPU_WHOLE_JOB", "1", 1); /* of an srun around this one */
	struct plugin p = start(S_CTX_LOCAL);
	for (int component = 0; component < 2; component++) {
		CHECK(give("vgpu-mem", "500", 0) == 0);
		CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	}
	SAME(getenv("SLURM_VGPU_WHOLE_JOB"), NULL);
	SAME(host.log, "");
	CHECK(give("vgpu-mem", "500", 0) == 0 && give("vgpu-cores", "5", 0) == 0);
	CHECK(p.init_post_opt(NULL, 0, NULL) == -1);
	LOGGED("vgpu: --vgpu-cores differs between the components of this srun");
	CHECK(p.init_post_opt(NULL, 0, NULL) == -1); /* none is another as well */
}

static void plugstack_arguments_are_checked(void)
{
	struct plugin p = load();
	host.context = S_CTX_ALLOCATOR;
	char *unknown[] = {"rundir=/run/x"}, *relative[] = {"run_dir=x"}, *percent[] = {"run_dir=/x/%h"},
	     *good[] = {"run_dir=/run/%n/vgpu"};
	CHECK(p.init(NULL, 1, unknown) == -1);
	LOGGED("vgpu: plugstack.conf: unknown argument rundir=/run/x: want run_dir=PATH");
	CHECK(p.init(NULL, 1, relative) == -1);
	LOGGED("run_dir=x: want an absolute path");
	CHECK(p.init(NULL, 1, percent) == -1);
	CHECK(host.options == 0);
	host.context = S_CTX_SLURMD;
	CHECK(p.init(NULL, 1, unknown) == -1); /* then slurmd does not start */
	host.context = S_CTX_ALLOCATOR;
	CHECK(p.init(NULL, 1, good) == 0);
}

static void check_asan_options(const char *own, const char *want)
{
	grant(5, "preload", NULL);
	if (own)
		set_job_env("ASAN_OPTIONS", own);
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(job_env("ASAN_OPTIONS"), want);
}

static void sanitizers_may_start(void) { check_asan_options(NULL, "verify_asan_link_order=0"); }

static void sanitizers_keep_their_options(void)
{
	check_asan_options("detect_leaks=0", "detect_leaks=0:verify_asan_link_order=0");
}

static void who_has_an_opinion_keeps_it(void)
{
	check_asan_options("verify_asan_link_order=1:x=y", "verify_asan_link_order=1:x=y");
}

const struct test_case user_cases[] = {
	{"options reach the job", options_reach_the_job, false},
	{"a bad option is refused", a_bad_option_is_refused, false},
	{"variables are defaults", variables_are_defaults, false},
	{"a bad variable is named and left out", a_bad_variable_is_named_and_left_out, false},
	{"a job from inside a job inherits nothing", a_job_from_inside_a_job_inherits_nothing, false},
	{"what is preloaded is inherited whole, or without the interposer",
	 what_is_preloaded_is_inherited_whole_or_without_the_interposer, false},
	{"an srun that allocates inherits nothing", an_srun_that_allocates_inherits_nothing, false},
	{"a step keeps the options of its job", a_step_keeps_the_options_of_its_job, false},
	{"each component has its own options", each_component_has_its_own_options, false},
	{"an srun that allocates says so to its steps", an_srun_that_allocates_says_so_to_its_steps, false},
	{"components of a step must agree", components_of_a_step_must_agree, false},
	{"plugstack arguments are checked", plugstack_arguments_are_checked, false},
	{"sanitizers may start", sanitizers_may_start, false},
	{"sanitizers keep their options", sanitizers_keep_their_options, false},
	{"who has an opinion of the order keeps it", who_has_an_opinion_keeps_it, false},
	{0},
};
