/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * slurmd and slurmstepd: what becomes of a step, before any mount. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "host.h"
#include "plan.h"

static int start_task(void)
{
	return loaded.task_init_privileged(NULL, 0, NULL) == 0 ? 0 : 1;
}

/* As start_task, and the log must be this one line. */
static const char *expected_line;
static int start_task_and_compare(void)
{
	char line[2048];
	int rc = loaded.task_init_privileged(NULL, 0, NULL);
	snprintf(line, sizeof(line), "%s%s", expected_line, *expected_line ? "\n" : "");
	SAME(host.log, line);
	return rc == -1 ? 7 : 0;
}

void check_refused(const char *reason)
{
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0); /* -1 would drain the node */
	SAME(host.log, "");
	expected_line = reason;
	host.task = 0;
	CHECK(run_in_child(start_task_and_compare) == 7);
	expected_line = ""; /* one line for the step, not one for each task */
	host.task = 1;
	CHECK(run_in_child(start_task_and_compare) == 7);
	CHECK(job_env("CUDA_VISIBLE_DEVICES") == NULL);
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
}

static void check_left_alone(void)
{
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(job_env("CUDA_VISIBLE_DEVICES") == NULL && job_env("VGPU_STEP_DIR") == NULL &&
	      job_env("LD_PRELOAD") == NULL && job_env("ASAN_OPTIONS") == NULL);
	CHECK(run_in_child(start_task) == 0);
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
	SAME(host.log, "");
}

static void preload_isolation_sets_the_environment(void)
{
	grant(5, "preload", NULL);
	char *before = read_text("/proc/self/mountinfo"), list[1024];
	snprintf(list, sizeof(list), "/opt/a.so:%s", library_path); /* as srun inherits it */
	set_job_env("LD_PRELOAD", list);
	set_job_env("CUDA_VISIBLE_DEVICES", "0,1,2,3");
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	snprintf(list, sizeof(list), "%s:/opt/a.so", library_path);
	SAME(job_env("LD_PRELOAD"), list);
	SAME(job_env("CUDA_VISIBLE_DEVICES"), "GPU-11111111-aaaa,GPU-22222222-bbbb");
	SAME(job_env("VGPU_STEP_DIR"), in_folder("run/jobs/5/steps/0"));
	CHECK(run_in_child(start_task) == 0);
	SAME(read_text("/proc/self/mountinfo"), before);
	CHECK(exists(in_folder("run/jobs/5/steps/0/limits")));
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
	CHECK(!exists(in_folder("run/jobs/5/steps/0")));
	CHECK(exists(in_folder("run/jobs/5/usage.json")));
	SAME(host.log, "");
}

static void an_endless_preload_list_is_refused(void)
{
	char list[8900];
	memset(list, 'x', sizeof(list));
	list[sizeof(list) - 1] = '\0';
	grant(5, "preload", NULL);
	set_job_env("LD_PRELOAD", list);
	loaded = start_step(5, 0);
	check_refused("vgpu: LD_PRELOAD of the job is too long to be added to");
}

static void a_refused_job_fails_with_the_reason(void)
{
	grant(5, "strict", "no GPU has 9000 MiB free (most: 4000 MiB)");
	loaded = start_step(5, SLURM_BATCH_SCRIPT);
	check_refused("vgpu: no GPU has 9000 MiB free (most: 4000 MiB)");
}

static void a_grant_of_another_user_is_refused(void)
{
	grant(5, "preload", NULL);
	host.uid++;
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(run_in_child(start_task) == 1);
	CHECK(!exists(in_folder("run/jobs/5/steps/0")));
}

/* Without knowing which step and whose it is nothing can be limited. */
static void a_step_that_slurm_does_not_name_is_refused(void)
{
	static const spank_item_t items[] = {S_JOB_ID, S_JOB_STEPID, S_JOB_UID, S_JOB_GID};

	grant(5, "preload", NULL);
	loaded = start_step(5, 0);
	host.item_fails = true;
	for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
		host.failing_item = items[i];
		*host.log = '\0';
		check_refused("vgpu: Slurm does not say which step this is");
		*host.log = '\0';
		CHECK(!exists(in_folder("run/jobs/5/steps/0")));
	}
}

static void a_step_without_its_environment_is_refused(void)
{
	static const char *const names[] = {"LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "VGPU_STEP_DIR"};

	grant(5, "preload", NULL);
	loaded = start_step(5, 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		host.failing_env = names[i];
		CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
		*host.log = '\0';
		expected_line = "vgpu: Slurm did not take the step's environment";
		host.task = 0;
		CHECK(run_in_child(start_task_and_compare) == 7);
		*host.log = '\0';
	}
}

static void a_broken_grant_is_refused(void)
{
	grant(5, "preload", NULL);
	write_file(in_folder("run/jobs/5/grant.json"), "{\"version\": 1, \"sli");
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(run_in_child(start_task) == 1);
	write_file(in_folder("run/jobs/5/grant.json"), "{\"version\": 2}");
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(run_in_child(start_task) == 1);
}

uint64_t step_mem_bytes(const char *step)
{
	/* interposer/api/layout.h: the first device, behind the header and its UUID */
	uint64_t bytes;
	memcpy(&bytes, read_text(in_folder("run/jobs/5/steps/%s/limits", step)) + 80 + 64, 8);
	return bytes;
}

static void a_step_may_take_less(void)
{
	grant(5, "preload", NULL);
	loaded = start_step(5, 3);
	CHECK(give("vgpu-mem", "1000", 1) == 0);
	CHECK(give("vgpu-mem", "1000", 1) == 0); /* Slurm 22.05 does so for srun */
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(step_mem_bytes("3") == 1000ull << 20);
}

static void a_step_may_not_take_more(void)
{
	grant(5, "preload", NULL);
	loaded = start_step(5, 3);
	CHECK(give("vgpu-mem", "4000", 1) == 0);
	check_refused("vgpu: --vgpu-mem=4000M is more than the job's slice of 3000 MiB");
}

static void forged_options_are_refused(void)
{
	char text[3000];
	memset(text, '1', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	grant(5, "preload", NULL);
	loaded = start_step(5, 0);
	CHECK(give("vgpu-mem", text, 1) == 0); /* Slurm ignores -1 here */
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(run_in_child(start_task) == 1);
	/* What is left when it is cut would be a request: as much as the job has. */
	memset(text, '0', sizeof(text) - 1);
	memcpy(text + VGPU_OPTION_BYTES - 1 - 4, "1000", 4);
	CHECK(give("vgpu-mem", text, 1) == 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(run_in_child(start_task) == 1);
	CHECK(give("vgpu-mem", "1000\n\033[31m", 1) == 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(run_in_child(start_task) == 1);
}

static void the_step_of_an_srun_that_allocated_has_the_whole_job(void)
{
	grant(5, "preload", NULL);
	set_job_env("SLURM_VGPU_WHOLE_JOB", "1");
	loaded = start_step(5, 0);
	CHECK(give("vgpu-mem", "4000", 1) == 0); /* of another component */
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(step_mem_bytes("0") == 3000ull << 20);
	CHECK(job_env("SLURM_VGPU_WHOLE_JOB") == NULL);
}

static void check_has_all_of_its_job(uint32_t step, const char *name)
{
	grant(5, "preload", NULL);
	host.controller_is_down = true; /* it is not asked */
	loaded = start_step(5, step);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(step_mem_bytes(name) == 3000ull << 20);
	SAME(host.log, "");
}

static void a_batch_step_has_all_of_its_job(void) { check_has_all_of_its_job(SLURM_BATCH_SCRIPT, "batch"); }

/* Of salloc, with LaunchParameters=use_interactive_step. */
static void an_interactive_step_has_all_of_its_job(void)
{
	check_has_all_of_its_job(SLURM_INTERACTIVE_STEP, "interactive");
}

static void a_job_without_vgpu_is_left_alone(void)
{
	mkdir(in_folder("run"), 0755);
	mkdir(in_folder("run/jobs"), 0755);
	write_file(in_folder("run/jobs/5.none"), "");
	loaded = start_step(5, 0);
	CHECK(give("vgpu-mem", "1000", 1) == 0);
	check_left_alone();
}

static void a_node_without_vgpu_is_left_alone(void)
{
	loaded = start_step(5, 0);
	CHECK(give("vgpu-mem", "1000", 1) == 0);
	check_left_alone();
}

static void the_extern_step_gets_nothing(void)
{
	grant(5, "strict", NULL);
	loaded = start_step(5, SLURM_EXTERN_CONT);
	check_left_alone();
	CHECK(!exists(in_folder("run/jobs/5/steps/extern")));
}

static void a_late_prolog_is_waited_for(void)
{
	mkdir(in_folder("run"), 0755);
	if (fork() == 0) {
		nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
		grant(5, "preload", NULL);
		_exit(0);
	}
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(job_env("VGPU_STEP_DIR"), in_folder("run/jobs/5/steps/0"));
	CHECK(run_in_child(start_task) == 0);
}

static void an_absent_prolog_is_not_waited_for_forever(void)
{
	mkdir(in_folder("run"), 0755);
	loaded = start_step(5, 0);
	CHECK(give("vgpu-mem", "1000", 1) == 0);
	check_refused("vgpu: job 5 asks for vgpu, but vgpu-prolog has not prepared it on this node");
}

static void the_node_name_is_slurmds(void)
{
	static const char *const bad[] = {"../n1", "..", ".n1", "", "n1/../n1"};
	char argument[512], *arguments[] = {argument};

	grant(5, "preload", NULL);
	CHECK(rename(in_folder("run"), in_folder("run-n1")) == 0);
	snprintf(argument, sizeof(argument), "run_dir=%s", in_folder("run-%%n"));
	setenv("SLURMD_NODENAME", "n1", 1);
	set_job_env("SLURMD_NODENAME", "n2"); /* the user's word */
	loaded = load();
	host.context = S_CTX_REMOTE;
	host.job = 5;
	CHECK(loaded.init(NULL, 1, arguments) == 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(job_env("VGPU_STEP_DIR"), in_folder("run-n1/jobs/5/steps/0"));
	/* With any of these the path would lead out of the folder, or be another one. */
	CHECK(symlink("run-n1", in_folder("run-..")) == 0 && symlink("run-n1", in_folder("run-.n1")) == 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("SLURMD_NODENAME", bad[i], 1);
		CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
		CHECK(run_in_child(start_task) == 1);
	}
	unsetenv("SLURMD_NODENAME");
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(run_in_child(start_task) == 1);
}

static void a_bad_plugstack_line_fails_the_tasks(void)
{
	char argument[512], *arguments[] = {"rundir=/run/x"}, *mended[] = {argument};

	snprintf(argument, sizeof(argument), "run_dir=%s", in_folder("run"));
	loaded = load();
	host.context = S_CTX_REMOTE;
	CHECK(loaded.init(NULL, 1, arguments) == 0); /* -1 would lose a batch job on 22.05 */
	check_refused("vgpu: plugstack.conf: unknown argument rundir=/run/x: want run_dir=PATH");
	CHECK(loaded.init(NULL, 1, mended) == 0);
	check_left_alone();
}

/* A slurmd that goes into the background forks after it loaded the plugin. */
static int in_a_daemon(void)
{
	CHECK(setsid() > 0);
	host.context = S_CTX_REMOTE; /* worse than what Slurm does: Go must stay out even so */
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
	return run_in_child(start_task);
}

static void a_daemon_never_enters_go(void)
{
	char argument[512], *arguments[] = {argument};

	grant(5, "strict", NULL);
	snprintf(argument, sizeof(argument), "run_dir=%s", in_folder("run"));
	loaded = load();
	host.context = S_CTX_SLURMD;
	host.job = 5;
	CHECK(loaded.init(NULL, 1, arguments) == 0);
	CHECK(host.options == 0);
	CHECK(run_in_child(in_a_daemon) == 1);
	CHECK(!exists(in_folder("run/jobs/5/steps/0")));
}

static int end_step(void) { return loaded.exit(NULL, 0, NULL); }

static void a_child_cannot_end_the_step(void)
{
	grant(5, "preload", NULL);
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(run_in_child(end_step) == 0);
	CHECK(exists(in_folder("run/jobs/5/steps/0/limits")));
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
	CHECK(!exists(in_folder("run/jobs/5/steps/0")));
}

const struct test_case step_cases[] = {
	{"preload isolation sets the environment", preload_isolation_sets_the_environment, false},
	{"an endless LD_PRELOAD is refused", an_endless_preload_list_is_refused, false},
	{"a refused job fails with the reason", a_refused_job_fails_with_the_reason, false},
	{"a grant of another user is refused", a_grant_of_another_user_is_refused, false},
	{"a step that Slurm does not name is refused", a_step_that_slurm_does_not_name_is_refused, false},
	{"a step without its environment is refused", a_step_without_its_environment_is_refused, false},
	{"a broken grant is refused", a_broken_grant_is_refused, false},
	{"a step may take less", a_step_may_take_less, false},
	{"a step may not take more", a_step_may_not_take_more, false},
	{"forged options are refused", forged_options_are_refused, false},
	{"the step of an srun that allocated has the whole job",
	 the_step_of_an_srun_that_allocated_has_the_whole_job, false},
	{"a batch step has all of its job", a_batch_step_has_all_of_its_job, false},
	{"an interactive step has all of its job", an_interactive_step_has_all_of_its_job, false},
	{"a job without vgpu is left alone", a_job_without_vgpu_is_left_alone, false},
	{"a node without vgpu is left alone", a_node_without_vgpu_is_left_alone, false},
	{"the extern step gets nothing", the_extern_step_gets_nothing, false},
	{"a late prolog is waited for", a_late_prolog_is_waited_for, false},
	{"an absent prolog is not waited for forever", an_absent_prolog_is_not_waited_for_forever, false},
	{"the node's name is slurmd's", the_node_name_is_slurmds, false},
	{"a bad plugstack line fails the tasks", a_bad_plugstack_line_fails_the_tasks, false},
	{"a daemon never enters Go", a_daemon_never_enters_go, false},
	{"a child cannot end the step", a_child_cannot_end_the_step, false},
	{0},
};
