/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_S 30 /* a test that hangs fails */
#define SKIPPED 77

static struct test *tests, **last = &tests;
static char dir[256], row[200];

void test_register(struct test *test)
{
	*last = test;
	last = &test->next;
}

void test_fail(const char *file, int line, const char *what, long long got, long long want)
{
	printf("  %s:%d: %s%s%s is %lld, want %lld\n", file, line, row, row[0] != '\0' ? ": " : "", what,
	       got, want);
	fflush(stdout);
	_exit(1);
}

void test_row(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(row, sizeof(row), format, args);
	va_end(args);
}

void test_skip(const char *why)
{
	printf("  skipped: %s\n", why);
	fflush(stdout);
	_exit(SKIPPED);
}

const char *node_dir(void)
{
	return dir;
}

void configure(const char *text)
{
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/simgpu.conf", dir);
	file = fopen(path, "w");
	TRUE(file != NULL);
	fputs(text, file);
	fclose(file);
}

struct peer peer_start(void (*fn)(struct peer *))
{
	int down[2], up[2];
	struct peer peer;

	TRUE(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
	fflush(stdout);
	peer.pid = fork();
	TRUE(peer.pid >= 0);
	if (peer.pid == 0) {
		close(down[1]);
		close(up[0]);
		peer = (struct peer){ .pid = getppid(), .in = down[0], .out = up[1] };
		alarm(LIMIT_S);
		fn(&peer);
		fflush(stdout);
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	peer.in = up[0];
	peer.out = down[1];
	return peer;
}

void peer_say(struct peer *peer, uint64_t word)
{
	EQ(write(peer->out, &word, sizeof(word)), sizeof(word));
}

uint64_t peer_hear(struct peer *peer)
{
	uint64_t word;

	EQ(read(peer->in, &word, sizeof(word)), sizeof(word));
	return word;
}

int peer_wait(struct peer *peer)
{
	int status;

	EQ(waitpid(peer->pid, &status, 0), peer->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void peer_kill(struct peer *peer)
{
	siginfo_t info;

	OK(kill(peer->pid, SIGKILL));
	OK(waitid(P_PID, (id_t)peer->pid, &info, WEXITED | WNOWAIT));
}

CUcontext start_cuda(void)
{
	CUcontext ctx;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	return ctx;
}

uint64_t free_mib(void)
{
	size_t free_bytes, total_bytes;

	OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	return free_bytes / SIM_MIB;
}

uint64_t used_mib(void)
{
	nvmlMemory_t memory;
	nvmlDevice_t device;

	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	OK(nvmlDeviceGetMemoryInfo(device, &memory));
	OK(nvmlShutdown());
	return memory.used / SIM_MIB;
}

static void remove_dir(void)
{
	DIR *entries = opendir(dir);
	struct dirent *entry;

	while (entries != NULL && (entry = readdir(entries)) != NULL)
		if (entry->d_name[0] != '.')
			if (unlinkat(dirfd(entries), entry->d_name, 0) != 0)
				unlinkat(dirfd(entries), entry->d_name, AT_REMOVEDIR);
	if (entries != NULL)
		closedir(entries);
	rmdir(dir);
}

static int run(const struct test *test)
{
	int status;
	pid_t pid;

	snprintf(dir, sizeof(dir), "%s/simgpu-test.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (mkdtemp(dir) == NULL) {
		perror(dir);
		return 1;
	}
	setenv("SIMGPU_DIR", dir, 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("CUDA_DEVICE_ORDER");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(LIMIT_S);
		test->run();
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid)
		status = -1;
	remove_dir();
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	unsigned passed = 0, failed = 0, skipped = 0;

	for (const struct test *test = tests; test != NULL; test = test->next) {
		int rc;

		if (argc > 1 && strstr(test->name, argv[1]) == NULL)
			continue;
		rc = run(test);
		passed += rc == 0;
		skipped += rc == SKIPPED;
		failed += rc != 0 && rc != SKIPPED;
		printf("%s %s\n", rc == 0 ? "ok  " : rc == SKIPPED ? "skip" : "FAIL", test->name);
		if (rc > 128)
			printf("  ended by signal %d\n", rc - 128);
	}
	if (skipped != 0)
		printf("%u skipped; ", skipped);
	printf("%u passed, %u failed\n", passed, failed);
	return failed != 0 || passed == 0;
}
