/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * testhost PLUGIN LIBRARY: plays every case in a process of its own, because what a plugin keeps
 * lasts as long as the process. testhost PLUGIN LIBRARY bench: measures instead. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

static bool passes(const struct test_case *c)
{
	int status = 1;

	make_folder();
	pid_t child = fork();
	if (child == 0) {
		alarm(60);
		host.uid = geteuid() == 0 ? 65534 : geteuid();
		c->run();
		_exit(0);
	}
	bool ended = child > 0 && waitpid(child, &status, 0) == child;
	remove_folder();
	if (ended && WIFSIGNALED(status))
		fprintf(stderr, "    ended by signal %d\n", WTERMSIG(status));
	return ended && status == 0;
}

int main(int argc, char *argv[])
{
	const struct test_case *const suites[] = {user_cases,	   step_cases,	 stepgres_cases,
						   isolation_cases, device_cases, container_cases,
						   podman_cases,    userns_cases,	  loader_cases,
						   pages_cases,     whole_cases};
	int passed = 0, failed = 0, skipped = 0;

	if (argc != 3 && (argc != 4 || strcmp(argv[3], "bench") != 0)) {
		fprintf(stderr, "usage: testhost PLUGIN LIBRARY [bench]\n");
		return 2;
	}
	plugin_path = argv[1];
	library_path = argv[2];
	if (argc == 4)
		return bench();
	umask(077); /* a job's umask must not close the step's folders to it */
	for (size_t s = 0; s < sizeof(suites) / sizeof(suites[0]); s++)
		for (const struct test_case *c = suites[s]; c->name; c++) {
			if (c->needs_root && geteuid() != 0) {
				printf("skip  %s: needs root\n", c->name);
				skipped++;
			} else if (passes(c)) {
				printf("ok    %s\n", c->name);
				passed++;
			} else {
				printf("FAIL  %s\n", c->name);
				failed++;
			}
			fflush(stdout);
		}
	printf("test/spank: %d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed != 0;
}
