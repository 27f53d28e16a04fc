/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A host that loads the plugin as Slurm does and plays its hooks, without a Slurm. */
#ifndef VGPU_TESTHOST_H
#define VGPU_TESTHOST_H

#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What the stubs of spank_* answer, and what they were told. One case is one process. */
struct host {
	spank_context_t context;
	uint32_t job, step;
	uid_t uid;
	int task;
	int options;		 /* registered */
	int control_calls;	 /* to spank_job_control_* */
	bool controller_is_down; /* or knows no such step */
	bool controller_goes_down; /* after its next answer */
	int answers;		 /* of the controller, that are held */
	bool item_fails;	 /* spank_get_item of this one */
	spank_item_t failing_item;
	const char *failing_env; /* spank_setenv of this one fails */
	char log[16384];	 /* what the user would read, line by line */
};
extern struct host host;

struct plugin {
	spank_f *init, *init_post_opt, *task_init_privileged, *exit;
};

extern const char *plugin_path, *library_path;

/* load is dlopen, once for each process. */
struct plugin load(void);

/* give plays Slurm's callback for --NAME=TEXT. */
int give(const char *name, const char *text, int remote);

/* The job's environment (spank_getenv, spank_setenv) and the control environment. */
const char *job_env(const char *name);
void set_job_env(const char *name, const char *value);
const char *control_env(const char *name);
void set_control_env(const char *name, const char *value);

/* controller_tells adds a record of the step: its GRES, its node, and what it has per task. Without any
 * the controller says what the step's job holds. */
void controller_tells(const char *per_node, const char *node, const char *per_task);
/* … as of srun --external-launcher. */
void controller_tells_of_a_launcher(void);

/* check ends the case at the first thing that is not so. */
void check_(bool ok, const char *what, const char *file, int line);
#define CHECK(condition) check_(condition, #condition, __FILE__, __LINE__)
void same_(const char *got, const char *want, const char *file, int line);
#define SAME(got, want) same_(got, want, __FILE__, __LINE__)
void logged_(const char *want, const char *file, int line);
#define LOGGED(want) logged_(want, __FILE__, __LINE__)

/* A case runs in a process of its own, and as root only if it says so. */
struct test_case {
	const char *name;
	void (*run)(void);
	bool needs_root;
};
extern const struct test_case user_cases[], step_cases[], stepgres_cases[], isolation_cases[], device_cases[],
	container_cases[], podman_cases[], userns_cases[], loader_cases[], pages_cases[],
	whole_cases[]; /* name NULL ends */

/* Files of a case: its own folder, empty, removed afterwards. */
extern char folder[256];
void make_folder(void);
void remove_folder(void);
const char *in_folder(const char *format, ...) __attribute__((format(printf, 1, 2)));
void write_file(const char *path, const char *text);
bool exists(const char *path);
char *read_text(const char *path); /* "" if it cannot be read; never freed */
int descriptors(const char *part); /* of this process, that lead to such a path */

/* The run folder of a case as vgpu-prolog leaves it. */
void grant(uint32_t job, const char *isolation, const char *refusal);
void a_ledger(uint32_t job);
extern const char *grant_more; /* what else stands in the next one: "NAME": VALUE, */
struct plugin start_step(uint32_t job, uint32_t step); /* load, init in remote context */
int run_in_child(int (*body)(void));		       /* fork, body, exit status */
extern struct plugin loaded;			       /* for body */

/* How the loaded step fares (cases_step.c): refused with this one line, or with so much memory on its
 * first GPU. */
void check_refused(const char *line);
uint64_t step_mem_bytes(const char *step);

/* Strict isolation (cases_isolation.c): a machine of the case's own, and what a task of job 5 sees on
 * it. The process can look at it from where slurmd is, and go back. */
void own_machine(void);
void check_view(void);
void mount_pages(uint32_t job);
void check_pages(void);
void go_outside(void);
/* errno of an attempt, or 0; the permission bits of a file. */
int open_error(const char *path, int flags);
mode_t mode_of(const char *path);
/* Where the step cannot be isolated, its tasks fail with the reason. */
void check_step_fails(const char *reason);
void go_back(void);

int bench(void); /* (bench.c) prints a table */

#endif
