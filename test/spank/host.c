/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "host.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct host host;
const char *plugin_path, *library_path;

static struct spank_option options[16];

struct entry {
	char name[128], value[9000];
};
static struct entry job[64], control[64];

static struct entry *find(struct entry *table, const char *name)
{
	struct entry *free_entry = NULL;
	for (int i = 0; i < 64; i++) {
		if (strcmp(table[i].name, name) == 0)
			return &table[i];
		if (!*table[i].name && !free_entry)
			free_entry = &table[i];
	}
	return free_entry;
}

static void set(struct entry *table, const char *name, const char *value)
{
	struct entry *e = find(table, name);
	snprintf(e->name, sizeof(e->name), "%s", name);
	snprintf(e->value, sizeof(e->value), "%s", value);
}

static const char *get(struct entry *table, const char *name)
{
	struct entry *e = find(table, name);
	return *e->name ? e->value : NULL;
}

const char *job_env(const char *name) { return get(job, name); }
void set_job_env(const char *name, const char *value) { set(job, name, value); }
const char *control_env(const char *name) { return get(control, name); }
void set_control_env(const char *name, const char *value) { set(control, name, value); }

/* ---- what Slurm offers to the plugin -------------------------------------------------------- */

spank_context_t spank_context(void) { return host.context; }

spank_err_t spank_option_register(spank_t sp, struct spank_option *option)
{
	(void)sp;
	options[host.options++] = *option;
	return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
	va_list arguments;
	spank_err_t rc = ESPANK_SUCCESS;

	(void)sp;
	if (host.item_fails && item == host.failing_item)
		return ESPANK_ERROR;
	va_start(arguments, item);
	switch (item) {
	case S_JOB_ID:
		*va_arg(arguments, uint32_t *) = host.job;
		break;
	case S_JOB_STEPID:
		*va_arg(arguments, uint32_t *) = host.step;
		break;
	case S_JOB_UID:
		*va_arg(arguments, uid_t *) = host.uid;
		break;
	case S_JOB_GID:
		*va_arg(arguments, gid_t *) = host.uid;
		break;
	case S_TASK_ID:
		*va_arg(arguments, int *) = host.task;
		break;
	default:
		rc = ESPANK_BAD_ARG;
	}
	va_end(arguments);
	return rc;
}

spank_err_t spank_getenv(spank_t sp, const char *name, char *buffer, int size)
{
	const char *value = get(job, name);

	(void)sp;
	if (!value)
		return ESPANK_ENV_NOEXIST;
	if (snprintf(buffer, size, "%s", value) >= size)
		return ESPANK_NOSPACE;
	return ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
	(void)sp;
	if (host.failing_env && strcmp(name, host.failing_env) == 0)
		return ESPANK_NOSPACE;
	if (!overwrite && get(job, name))
		return ESPANK_ENV_EXISTS;
	set(job, name, value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
	(void)sp;
	struct entry *e = find(job, name);
	*e->name = '\0';
	return ESPANK_SUCCESS;
}

spank_err_t spank_job_control_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
	(void)sp;
	host.control_calls++;
	if (!overwrite && get(control, name))
		return ESPANK_ENV_EXISTS;
	set(control, name, value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_job_control_unsetenv(spank_t sp, const char *name)
{
	(void)sp;
	host.control_calls++;
	struct entry *e = find(control, name);
	if (e)
		*e->name = '\0';
	return ESPANK_SUCCESS;
}

static void keep_line(const char *prefix, const char *format, va_list arguments)
{
	size_t used = strlen(host.log);
	used += snprintf(host.log + used, sizeof(host.log) - used, "%s", prefix);
	used += vsnprintf(host.log + used, sizeof(host.log) - used, format, arguments);
	snprintf(host.log + used, sizeof(host.log) - used, "\n");
}

void slurm_error(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	keep_line("error: ", format, arguments);
	va_end(arguments);
}

void slurm_spank_log(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	keep_line("", format, arguments);
	va_end(arguments);
}

/* ---- what Slurm does with the plugin -------------------------------------------------------- */

static spank_f *hook(void *plugin, const char *name)
{
	spank_f *found = (spank_f *)dlsym(plugin, name);
	check_(found != NULL, name, __FILE__, __LINE__);
	return found;
}

struct plugin load(void)
{
	void *plugin = dlopen(plugin_path, RTLD_LAZY);
	if (!plugin)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(plugin != NULL);
	SAME(dlsym(plugin, "plugin_name"), "vgpu");
	SAME(dlsym(plugin, "plugin_type"), "spank");
	CHECK(!dlsym(plugin, "main") && !dlsym(plugin, "init") && !dlsym(plugin, "fini"));
	return (struct plugin){
		.init = hook(plugin, "slurm_spank_init"),
		.init_post_opt = hook(plugin, "slurm_spank_init_post_opt"),
		.task_init_privileged = hook(plugin, "slurm_spank_task_init_privileged"),
		.exit = hook(plugin, "slurm_spank_exit"),
	};
}

int give(const char *name, const char *text, int remote)
{
	for (int i = 0; i < host.options; i++)
		if (strcmp(options[i].name, name) == 0) {
			CHECK(options[i].has_arg == 1);
			return options[i].cb(options[i].val, text, remote);
		}
	CHECK(!"the option is registered");
	return -1;
}

/* ---- checks --------------------------------------------------------------------------------- */

static void end_case(void)
{
	if (*host.log)
		fprintf(stderr, "    log: %s", host.log);
	_exit(1);
}

void check_(bool ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	fprintf(stderr, "    %s:%d: not so: %s\n", file, line, what);
	end_case();
}

void same_(const char *got, const char *want, const char *file, int line)
{
	if (got == want || (got && want && strcmp(got, want) == 0))
		return;
	fprintf(stderr, "    %s:%d: got %s, want %s\n", file, line, got ? got : "(unset)",
		want ? want : "(unset)");
	end_case();
}

void logged_(const char *want, const char *file, int line)
{
	if (strstr(host.log, want))
		return;
	fprintf(stderr, "    %s:%d: not in the log: %s\n", file, line, want);
	end_case();
}
