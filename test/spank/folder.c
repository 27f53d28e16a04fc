/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a case finds: its own folder, the run folder of a job in it, a step that has begun. */
#define _GNU_SOURCE
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"
#include "plan.h"

char folder[256];
struct plugin loaded;

const char *in_folder(const char *format, ...)
{
	static char paths[8][1024]; /* so that some can be used at a time */
	static int next;
	char *path = paths[next++ % 8];
	va_list arguments;

	int n = snprintf(path, 1024, "%s/", folder);
	va_start(arguments, format);
	vsnprintf(path + n, 1024 - n, format, arguments);
	va_end(arguments);
	return path;
}

void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
		fprintf(stderr, "    write %s: %s\n", path, strerror(errno));
		_exit(1);
	}
}

bool exists(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0;
}

char *read_text(const char *path)
{
	size_t size = 1 << 20;
	char *text = calloc(1, size);
	FILE *file = fopen(path, "r");
	if (file) {
		size_t n = fread(text, 1, size - 1, file);
		text[n] = '\0';
		fclose(file);
	}
	return text;
}

int descriptors(const char *part)
{
	char path[64], to[4096];
	int count = 0;

	for (int fd = 0; fd < 1024; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = '\0';
		count += n > 0 && strstr(to, part) != NULL;
	}
	return count;
}

const char *grant_more = "";

void grant(uint32_t job, const char *isolation, const char *refusal)
{
	char text[8192], slices[1024] = "", refused[600] = "", guards[2048] = "";

	mkdir(in_folder("run"), 0755);
	mkdir(in_folder("run/jobs"), 0755);
	CHECK(mkdir(in_folder("run/jobs/%u", job), 0755) == 0);
	CHECK(mkdir(in_folder("run/jobs/%u/steps", job), 0755) == 0);
	if (refusal)
		snprintf(refused, sizeof(refused), "\"refusal\": \"%s\",", refusal);
	else
		snprintf(slices, sizeof(slices),
			 "{\"device\": \"GPU-11111111-aaaa\", \"nvml_index\": 0, \"minor\": 0,"
			 " \"mem_mib\": 3000, \"sm_percent\": 30},"
			 "{\"device\": \"GPU-22222222-bbbb\", \"nvml_index\": 2, \"minor\": 2,"
			 " \"mem_mib\": 3000, \"sm_percent\": 30}");
	if (exists(in_folder("driver")))
		snprintf(guards, sizeof(guards),
			 "\"guards\": [{\"driver\": \"%s\", \"guard\": \"%s\", \"behind\": \"libcuda-slurm-vgpu.so\"}],",
			 in_folder("driver/libcuda.so.580"), in_folder("driver/guard.so"));
	snprintf(text, sizeof(text),
		 "{\"version\": 1, \"job\": %u, \"uid\": %u, \"gid\": %u, \"request\": \"mem=3000\","
		 " %s %s %s \"slices\": [%s], \"isolation\": \"%s\", \"library\": \"%s\","
		 " \"device_dir\": \"%s\", \"mask_minors\": [1, 3], \"policy\": \"cap\","
		 " \"entitlement\": {\"vgpu\": 2, \"gpumem_mib\": 6000, \"gpucores\": 60},"
		 " \"node_gpus_mib\": [143771, 143771]}",
		 job, host.uid, host.uid, refused, guards, grant_more, slices, isolation, library_path,
		 in_folder("dev"));
	mkdir(in_folder("run/pages"), 0755);
	CHECK(mkdir(in_folder("run/pages/%u", job), 0755) == 0);
	CHECK(chmod(in_folder("run"), 0755) == 0 && chmod(in_folder("run/pages"), 0755) == 0 &&
	      chmod(in_folder("run/pages/%u", job), 0755) == 0);
	a_ledger(job);
	/* In one step, as vgpu-prolog does: a step may be waiting for it. */
	write_file(in_folder("run/jobs/%u/grant.tmp", job), text);
	CHECK(rename(in_folder("run/jobs/%u/grant.tmp", job),
		     in_folder("run/jobs/%u/grant.json", job)) == 0);
}

void a_ledger(uint32_t job)
{
	const char *ledger = in_folder("run/pages/%u/ledger", job);

	write_file(ledger, "");
	CHECK(chmod(ledger, 0600) == 0 && chown(ledger, host.uid, host.uid) == 0);
}

struct plugin start_step(uint32_t job, uint32_t step)
{
	char argument[512], *arguments[] = {argument};

	snprintf(argument, sizeof(argument), "run_dir=%s", in_folder("run"));
	struct plugin p = load();
	host.context = S_CTX_REMOTE;
	host.job = job;
	host.step = step;
	CHECK(p.init(NULL, 1, arguments) == 0);
	CHECK(host.options == VGPU_OPTION_COUNT);
	return p;
}

int run_in_child(int (*body)(void))
{
	int status = 0;
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		alarm(20); /* Go after a fork hangs: that must fail, not wait */
		_exit(body());
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st, (void)kind, (void)ftw;
	return remove(path);
}

void make_folder(void)
{
	/* Like /run, where run folders stand, /dev/shm is no disk: fsync costs nothing there. */
	snprintf(folder, sizeof(folder), "%s/vgpu-testhost-XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	CHECK(mkdtemp(folder) && chmod(folder, 0755) == 0);
}

void remove_folder(void)
{
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
