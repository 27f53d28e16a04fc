/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every SPANK hook of the plugin, by context and in the order in which Slurm calls them. README.md
 * has the same as a table. A failing hook returns -1: before 25.05 Slurm takes ESPANK_* codes, which
 * are positive, for success. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "arguments.h"
#include "components.h"
#include "inherit.h"
#include "isolated.h"
#include "loader.h"
#include "moved.h"
#include "options.h"
#include "plan.h"
#include "process.h"
#include "stepgres.h"
#include "userns.h"
#include "whole.h"

SPANK_PLUGIN(vgpu, 1)

/* How long vgpu-prolog may be late. With PrologFlags=Alloc Slurm 22.05 can start an srun step
 * before the prolog has run on its node. */
#define PROLOG_WAIT_MS 5000

static struct vgpu_arguments arguments;
static char arguments_wrong[VGPU_REASON_BYTES]; /* "" if they are right */

/* The step of this slurmstepd. Filled before the first fork, so every task's child has them. */
static struct vgpu_step step;
static struct vgpu_plan plan;

/* ---- sbatch, salloc and srun ---------------------------------------------------------------- */

/* srun inside a job starts a step of it; everything else here submits a new job. */
static bool submits_a_job(void)
{
	return spank_context() == S_CTX_ALLOCATOR || !getenv("SLURM_JOB_ID");
}

static int user_init(spank_t sp)
{
	vgpu_allow_go();
	if (submits_a_job())
		vgpu_disinherit();
	return vgpu_options_register(sp);
}

static bool any_text(char text[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES])
{
	for (int i = 0; i < VGPU_OPTION_COUNT; i++)
		if (*text[i])
			return true;
	return false;
}

static int set_control(spank_t sp, const char *name, const char *value)
{
	if (*value == '\0') {
		spank_job_control_unsetenv(sp, name); /* absent is as good */
		return 0;
	}
	if (spank_job_control_setenv(sp, name, value, 1) == ESPANK_SUCCESS)
		return 0;
	slurm_error("vgpu: cannot hand %s to the job", name);
	return -1;
}

/* The options of a step travel with the step; those of a job to job_submit and the prolog. */
static int user_post_opt(spank_t sp)
{
	static struct vgpu_request request; /* static: too large for a stack we do not know */

	memset(&request, 0, sizeof(request)); /* this is called once per het component */
	vgpu_options_take(request.option);
	if (!submits_a_job())
		return vgpu_components_new_step(request.option);
	vgpu_components_new_job(sp);
	vgpu_options_defaults(request.fallback);
	const struct vgpu_launch *go;
	if ((any_text(request.option) || any_text(request.fallback)) && (go = vgpu_launch(request.error)))
		go->encode_request(&request);
	if (*request.error) {
		slurm_error("vgpu: %s", request.error);
		return -1;
	}
	if (*request.warning)
		slurm_spank_log("vgpu: left out: %s", request.warning);
	if (set_control(sp, "VGPU_REQUEST", request.request) != 0 ||
	    set_control(sp, "VGPU_TYPED", request.typed) != 0)
		return -1;
	return set_control(sp, "VGPU_DEFAULTS", request.defaults);
}

/* ---- slurmstepd ----------------------------------------------------------------------------- */

static int refuse_while(const char *doing, const char *reason)
{
	plan.verdict = VGPU_REFUSE;
	int n = snprintf(plan.reason, sizeof(plan.reason), "%s%s", doing, reason);
	if (n >= (int)sizeof(plan.reason)) /* the beginning names the object */
		memcpy(plan.reason + sizeof(plan.reason) - sizeof("..."), "...", sizeof("..."));
	return 0; /* here -1 would drain the node; the tasks fail instead */
}

static int refuse(const char *reason) { return refuse_while("", reason); }

static bool exists(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0;
}

/* A job without vgpu costs these two calls. */
static bool is_no_concern_of_ours(void)
{
	char none[VGPU_PATH_BYTES + 32];

	snprintf(none, sizeof(none), "%s/jobs/%u.none", step.run_dir, step.job);
	return exists(none) || !exists(step.run_dir);
}

/* Of the job's environment; "" is absent. False if it is longer than that. */
static bool job_value(spank_t sp, const char *name, char value[VGPU_VALUE_BYTES])
{
	spank_err_t rc = spank_getenv(sp, name, value, VGPU_VALUE_BYTES);
	if (rc != ESPANK_SUCCESS)
		*value = '\0';
	return rc != ESPANK_NOSPACE;
}

static bool brings_library(void)
{
	for (uint32_t i = 0; i < plan.env_count; i++)
		if (strcmp(plan.env[i].name, "LD_PRELOAD") == 0)
			return true;
	return plan.library[0] != '\0';
}

/* AddressSanitizer's shared runtime ends a program in which another library is loaded before it, as ours
 * is. It need not be the first: ours calls what it finds there. A job that has the key keeps its value. */
static int let_sanitizers_start(spank_t sp)
{
	static const char name[] = "ASAN_OPTIONS", key[] = "verify_asan_link_order";
	char own[VGPU_VALUE_BYTES], value[VGPU_VALUE_BYTES + sizeof(key) + 4];

	if (!job_value(sp, name, own) || strstr(own, key))
		return 0;
	snprintf(value, sizeof(value), "%s%s%s=0", own, *own ? ":" : "", key);
	return spank_setenv(sp, name, value, 1) == ESPANK_SUCCESS ? 0 : -1;
}

/* Writes the prolog's notice about this node into slurmd's log, once for each job, unseen by the user. */
static void say_notice(void)
{
	char path[VGPU_PATH_BYTES + 32], text[VGPU_REASON_BYTES];

	snprintf(path, sizeof(path), "%s/notice", step.run_dir);
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	slurm_info("vgpu: %s", text);
}

static int step_post_opt(spank_t sp)
{
	uid_t uid;
	gid_t gid;
	char why[VGPU_REASON_BYTES];

	memset(&plan, 0, sizeof(plan));
	if (*arguments_wrong)
		return refuse(arguments_wrong);
	/* slurmd puts the name into slurmstepd's own environment; the job's could be forged. */
	if (vgpu_run_dir(&arguments, getenv("SLURMD_NODENAME"), step.run_dir, why) != 0)
		return refuse(why);
	if (spank_get_item(sp, S_JOB_ID, &step.job) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_STEPID, &step.step) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_GID, &gid) != ESPANK_SUCCESS)
		return refuse("Slurm does not say which step this is");
	if (step.step == SLURM_EXTERN_CONT)
		say_notice();
	if (step.step == SLURM_EXTERN_CONT || is_no_concern_of_ours())
		return 0;

	/* Before the controller is asked, which may take seconds: an upgrade may take this release's away. */
	const struct vgpu_launch *go = vgpu_launch(why);
	if (!go)
		return refuse_while("prepare the step: ", why);
	step.uid = uid;
	step.gid = gid;
	step.wait_ms = PROLOG_WAIT_MS;
	vgpu_options_take(step.option);
	step.whole_job = vgpu_components_whole_job(sp);
	/* The batch step is of the first component, and so is the variable. */
	if (step.step != SLURM_BATCH_SCRIPT || spank_getenv(sp, "SLURM_SPANK_VGPU_REQUEST", step.request,
							    sizeof(step.request)) != ESPANK_SUCCESS)
		*step.request = '\0';
	if (step.step < SLURM_INTERACTIVE_STEP) /* batch scripts and shells have all that their job has */
		vgpu_stepgres_ask(&step, getenv("SLURMD_NODENAME"));
	vgpu_whole_ask(sp, &step);
	step.ld_preload_cut = !job_value(sp, "LD_PRELOAD", step.ld_preload);
	step.binds_cut = !job_value(sp, "APPTAINER_BIND", step.apptainer_bind) ||
			 !job_value(sp, "SINGULARITY_BIND", step.singularity_bind);
	go->plan(&step, &plan);

	for (uint32_t i = 0; plan.verdict == VGPU_RUN && i < plan.env_count; i++)
		if (spank_setenv(sp, plan.env[i].name, plan.env[i].value, 1) != ESPANK_SUCCESS)
			return refuse("Slurm did not take the step's environment");
	if (plan.verdict == VGPU_RUN && brings_library() && let_sanitizers_start(sp) != 0)
		return refuse("Slurm did not take the step's environment");
	/* slurmstepd opens the files of --input and --output and runs the user's task epilog itself,
	 * so it must see and be allowed no more than the tasks. What they share ends with the step's
	 * last process. */
	if (plan.verdict == VGPU_RUN && plan.strict && vgpu_isolated_step(&plan, step.job, why) != 0)
		return refuse_while("isolate the step: ", why);
	if (plan.verdict == VGPU_RUN && plan.deny_userns && vgpu_userns_deny(why) != 0)
		return refuse_while("deny user namespaces: ", why);
	return 0;
}

/* One line for the user, not one per task. */
static bool is_first_task(spank_t sp)
{
	int task;
	return spank_get_item(sp, S_TASK_ID, &task) != ESPANK_SUCCESS || task == 0;
}

/* In the task's own process, after fork: no Go from here on. */
static int task_start(spank_t sp)
{
	char why[VGPU_REASON_BYTES];

	switch (plan.verdict) {
	case VGPU_LEAVE:
		return 0;
	case VGPU_RUN:
		/* Not yet only if Slurm moves tasks in a way that container.c does not know. */
		if (!plan.strict || vgpu_isolated_task(&plan, why) == 0)
			return 0;
		slurm_spank_log("vgpu: isolate the task: %s", why);
		return -1;
	default:
		if (is_first_task(sp))
			slurm_spank_log("vgpu: %s", plan.reason);
		return -1;
	}
}

/* Runs as the user, after the plugins before ours in plugstack.conf: Pyxis has moved the task into a
 * container. It may be another job's, or have no limits. */
static int task_moved(void)
{
	if (!plan.strict || vgpu_is_isolated() || vgpu_moved_is_held(&plan))
		return 0;
	slurm_spank_log("vgpu: the container is another job's%s",
			plan.library[0] ? ", or has neither this one's /dev nor its /run/slurm-vgpu/self "
					  "(enroot: /etc/enroot/mounts.d/50-slurm-vgpu.fstab)"
					: ": GPUs that this job does not hold are open in it");
	return -1;
}

static int step_end(void)
{
	char says[VGPU_REASON_BYTES] = "", why[VGPU_REASON_BYTES] = "";

	if (plan.verdict == VGPU_RUN && plan.strict)
		vgpu_isolated_end(&plan);
	if (plan.verdict != VGPU_RUN || !vgpu_may_enter_go())
		return 0;
	const struct vgpu_launch *go = vgpu_launch(why);
	if (go)
		go->finish_step(&step, says, why);
	if (*says)
		slurm_spank_log("vgpu: %s", says);
	if (*why)
		slurm_error("vgpu: %s", why);
	return 0; /* the program has ended; a lost usage record is not its fault */
}

/* ---- hooks ---------------------------------------------------------------------------------- */

int slurm_spank_init(spank_t sp, int ac, char *av[])
{
	/* Without the run folder nobody can tell which jobs are ours, so that none may start: slurmd,
	 * sbatch and srun refuse to. In slurmstepd the tasks fail instead, because after an error here
	 * Slurm 22.05 drains the node and calls a batch job that never ran completed. */
	*arguments_wrong = '\0';
	if (vgpu_arguments_read(ac, av, &arguments, arguments_wrong) != 0 &&
	    spank_context() != S_CTX_REMOTE) {
		slurm_error("vgpu: %s", arguments_wrong);
		return -1;
	}
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		return user_init(sp);
	case S_CTX_REMOTE:
		vgpu_allow_go();
		return vgpu_options_register(sp);
	default: /* slurmd: until 24.05 it forks after this, and Go would be dead in the child */
		return 0;
	}
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char *av[])
{
	(void)ac, (void)av;
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		return user_post_opt(sp);
	case S_CTX_REMOTE:
		return step_post_opt(sp);
	default:
		return 0;
	}
}

int slurm_spank_task_init_privileged(spank_t sp, int ac, char *av[])
{
	(void)ac, (void)av;
	return task_start(sp);
}

/* After Slurm has bound the task to GPUs, and before the program starts. */
int slurm_spank_task_init(spank_t sp, int ac, char *av[])
{
	(void)ac, (void)av;
	if (plan.verdict != VGPU_RUN)
		return 0;
	return task_moved() == 0 ? vgpu_whole_bind(sp, &plan) : -1;
}

int slurm_spank_exit(spank_t sp, int ac, char *av[])
{
	/* sp is not touched: sbatch and salloc pass one whose job pointer is garbage. */
	(void)sp, (void)ac, (void)av;
	return spank_context() == S_CTX_REMOTE ? step_end() : 0;
}
