/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The part in Go: who loads it, and what happens where it cannot be had. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "host.h"

#define PART "spank_vgpu_launch-" VGPU_VERSION ".so"

static bool has_go(void)
{
	return strstr(read_text("/proc/self/maps"), "/" PART) != NULL;
}

static void a_submission_without_options_needs_no_go(void)
{
	struct plugin p = load();
	host.context = S_CTX_ALLOCATOR;
	CHECK(p.init(NULL, 0, NULL) == 0 && p.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(p.exit(NULL, 0, NULL) == 0);
	CHECK(!has_go());
	CHECK(give("vgpu-mem", "3000", 0) == 0);
	CHECK(has_go());
}

static void a_job_without_slices_needs_no_go(void)
{
	mkdir(in_folder("run"), 0755);
	mkdir(in_folder("run/jobs"), 0755);
	write_file(in_folder("run/jobs/5.none"), "");
	struct plugin p = start_step(5, 0);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0 && p.exit(NULL, 0, NULL) == 0);
	CHECK(!has_go());
}

static void an_extern_step_needs_no_go(void)
{
	grant(5, "preload", NULL);
	struct plugin p = start_step(5, SLURM_EXTERN_CONT);
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0 && p.exit(NULL, 0, NULL) == 0);
	CHECK(!has_go());
}

static void a_job_with_slices_loads_it_once(void)
{
	grant(5, "preload", NULL);
	struct plugin p = start_step(5, 0);
	CHECK(!has_go());
	CHECK(p.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(has_go());
	/* What is removed, or replaced, while the step runs does not matter to it. */
	plugin_path = "/does/not/exist";
	CHECK(p.exit(NULL, 0, NULL) == 0);
	CHECK(exists(in_folder("run/jobs/5/usage.json")));
}

static void copy(const char *from, const char *to)
{
	static char bytes[1 << 16];
	size_t n;
	FILE *in = fopen(from, "r"), *out = fopen(to, "w");

	CHECK(in && out);
	while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
		CHECK(fwrite(bytes, 1, n, out) == n);
	CHECK(fclose(in) == 0 && fclose(out) == 0);
}

static void plugin_in_a_folder_of_its_own(void)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s", in_folder("spank_vgpu.so"));
	copy(plugin_path, path);
	plugin_path = path;
}

static void without_it_the_step_is_refused(void)
{
	char line[1024];

	plugin_in_a_folder_of_its_own();
	grant(5, "preload", NULL);
	loaded = start_step(5, 0);
	snprintf(line, sizeof(line),
		 "vgpu: prepare the step: load the plugin's second part: %s: cannot open shared object file: "
		 "No such file or directory",
		 in_folder(PART));
	check_refused(line);
}

static void without_it_an_option_is_refused(void)
{
	plugin_in_a_folder_of_its_own();
	struct plugin p = load();
	host.context = S_CTX_ALLOCATOR;
	CHECK(p.init(NULL, 0, NULL) == 0);
	CHECK(give("vgpu-mem", "3000", 0) == -1);
	LOGGED("error: vgpu: load the plugin's second part: ");
	*host.log = '\0';
	setenv("VGPU_MEM", "3000", 1);
	CHECK(p.init_post_opt(NULL, 0, NULL) == -1);
	LOGGED("error: vgpu: load the plugin's second part: ");
}

static const char *other_release(char line[1024])
{
	snprintf(line, 1024,
		 "vgpu: prepare the step: %s is of another release than the plugin beside it",
		 in_folder(PART));
	return line;
}

/* Any library has none of our functions. */
static void another_library_is_not_taken(void)
{
	char line[1024];

	plugin_in_a_folder_of_its_own();
	copy(library_path, in_folder(PART));
	grant(5, "preload", NULL);
	loaded = start_step(5, 0);
	check_refused(other_release(line));
}

static const char ours[] = "slurm-vgpu ";

/* One byte of the number that the plugin hands over is another one. */
static void another_release_is_not_taken(void)
{
	char line[1024], launch[512];

	snprintf(launch, sizeof(launch), "%s", plugin_path);
	strcpy(strrchr(launch, '/'), "/" PART);
	plugin_in_a_folder_of_its_own();
	copy(launch, in_folder(PART));

	FILE *file = fopen(plugin_path, "r+");
	static char bytes[1 << 18];
	CHECK(file != NULL);
	size_t n = fread(bytes, 1, sizeof(bytes), file);
	CHECK(n > 0 && n < sizeof(bytes));
	/* The section says the number after a name; the text that is compared is the other one like it. */
	char *said = memmem(bytes, n, ours, strlen(ours));
	CHECK(said != NULL);
	size_t length = strlen(said + strlen(ours)) + 1;
	char number[64];
	CHECK(length < sizeof(number));
	memcpy(number, said + strlen(ours), length);
	bool changed = false;
	for (char *at = bytes; (at = memmem(at, n - (size_t)(at - bytes), number, length)); at++)
		if (at != said + strlen(ours))
			*at ^= 1, changed = true;
	CHECK(changed);
	rewind(file);
	CHECK(fwrite(bytes, 1, n, file) == n && fclose(file) == 0);

	grant(5, "preload", NULL);
	loaded = start_step(5, 0);
	check_refused(other_release(line));
}

const struct test_case loader_cases[] = {
	{"a submission without options needs no Go", a_submission_without_options_needs_no_go, false},
	{"a job without slices needs no Go", a_job_without_slices_needs_no_go, false},
	{"an extern step needs no Go", an_extern_step_needs_no_go, false},
	{"a job with slices loads it once", a_job_with_slices_loads_it_once, false},
	{"without the part in Go a step is refused", without_it_the_step_is_refused, false},
	{"without the part in Go an option is refused", without_it_an_option_is_refused, false},
	{"another library is not taken for it", another_library_is_not_taken, false},
	{"another release's is not taken", another_release_is_not_taken, false},
	{NULL, NULL, false},
};
