/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Runs a program, with or without the interposer, as another user when asked, and answers its
 * questions about what the driver holds for it (witness.h). */
#include "witness.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define LISTED 1024
#define NOT_AVAILABLE UINT64_MAX

struct process_info {
	unsigned int pid;
	unsigned long long bytes;
	unsigned int gpu_instance, compute_instance;
};

struct memory_info {
	unsigned long long total, free, used;
};

static struct {
	int (*init)(void);
	int (*by_uuid)(const char *uuid, void **device);
	int (*by_index)(unsigned int index, void **device);
	int (*memory)(void *device, struct memory_info *memory);
	int (*processes)(void *device, unsigned int *count, struct process_info *list);
} nvml;

static void *device;
static pid_t child;
static uint64_t peak;

static bool nvml_start(const char *uuid)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

	if (library == NULL)
		return false;
	*(void **)&nvml.init = dlsym(library, "nvmlInit_v2");
	*(void **)&nvml.by_uuid = dlsym(library, "nvmlDeviceGetHandleByUUID");
	*(void **)&nvml.by_index = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&nvml.memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
	*(void **)&nvml.processes = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
	if (!nvml.init || !nvml.by_uuid || !nvml.by_index || !nvml.memory || !nvml.processes ||
	    nvml.init() != 0)
		return false;
	return (uuid != NULL ? nvml.by_uuid(uuid, &device) : nvml.by_index(0, &device)) == 0;
}

static struct witness_said look(pid_t pid)
{
	static struct process_info list[LISTED];
	struct witness_said said = { .device_free = WITNESS_UNKNOWN };
	struct memory_info memory;
	unsigned int count = LISTED;

	if (nvml.memory(device, &memory) == 0)
		said.device_free = memory.free;
	if (nvml.processes(device, &count, list) != 0) {
		said.process = said.session = WITNESS_UNKNOWN;
		count = 0;
	}
	for (unsigned int i = 0; i < count; i++) {
		if (list[i].bytes == NOT_AVAILABLE)
			continue;
		if (list[i].pid == (unsigned int)pid)
			said.process += list[i].bytes;
		if (getsid((pid_t)list[i].pid) == child)
			said.session += list[i].bytes;
	}
	if (said.session != WITNESS_UNKNOWN && said.session > peak)
		peak = said.session;
	said.session_peak = peak;
	return said;
}

/* Whoever ends the witness ends what it has started. */
static void end_all(int number)
{
	(void)number;
	kill(-child, SIGKILL);
}

/* Until the program has ended; its wait status. */
static int serve(int fd, int every_ms)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	int status;

	while (waitpid(child, &status, WNOHANG) == 0) {
		int32_t pid;

		if (poll(&poll_fd, 1, every_ms) <= 0) {
			look(0);
			continue;
		}
		if (read(fd, &pid, sizeof(pid)) == (ssize_t)sizeof(pid)) {
			struct witness_said said = look(pid);

			if (send(fd, &said, sizeof(said), MSG_NOSIGNAL) < 0)
				poll_fd.fd = -1;
		} else {
			poll_fd.fd = -1; /* closed: only the end is left to wait for */
		}
	}
	return status;
}

static int become(char **argv, const char *preload, const char *step, long uid, int fd)
{
	char number[16];

	setsid();
	if (uid > 0 && (setgroups(0, NULL) != 0 || setgid((gid_t)uid) != 0 || setuid((uid_t)uid) != 0)) {
		perror("witness: becoming the user");
		return 126;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* becoming another user would undo it */
	snprintf(number, sizeof(number), "%d", fd);
	setenv(WITNESS_FD_ENV, number, 1);
	if (preload != NULL)
		setenv("LD_PRELOAD", preload, 1);
	if (step != NULL)
		setenv("VGPU_STEP_DIR", step, 1);
	execvp(argv[0], argv);
	fprintf(stderr, "witness: %s: %s\n", argv[0], strerror(errno));
	return 127;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "preload", required_argument, NULL, 'p' }, { "step", required_argument, NULL, 's' },
		{ "uid", required_argument, NULL, 'u' },     { "gpu", required_argument, NULL, 'g' },
		{ "every", required_argument, NULL, 'e' },   { "report", required_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	const char *preload = NULL, *step = NULL, *uuid = NULL, *report = NULL;
	int pair[2], c, status, every_ms = 10;
	long uid = 0;

	while ((c = getopt_long(argc, argv, "+", known, NULL)) != -1) {
		switch (c) {
		case 'p': preload = optarg; break;
		case 's': step = optarg; break;
		case 'u': uid = atol(optarg); break;
		case 'g': uuid = optarg; break;
		case 'e': every_ms = atoi(optarg); break;
		case 'r': report = optarg; break;
		default:
			fputs("usage: witness [--preload LIBRARY --step FOLDER] [--uid N] [--gpu UUID] "
			      "[--every MS]\n"
			      "               [--report FILE] -- PROGRAM ARGUMENT...\n",
			      stderr);
			return 2;
		}
	}
	if (optind == argc || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
		return 2;
	child = fork();
	if (child == 0) {
		close(pair[0]);
		_exit(become(argv + optind, preload, step, uid, pair[1]));
	}
	signal(SIGTERM, end_all);
	/* NVML starts here, not before: a program inherits nothing of it. */
	if (!nvml_start(uuid)) {
		fputs("witness: no NVML, no answers\n", stderr);
		close(pair[0]);
		close(pair[1]);
		waitpid(child, &status, 0);
	} else {
		close(pair[1]);
		status = serve(pair[0], every_ms);
	}
	if (report != NULL) {
		FILE *to = fopen(report, "w");

		if (to != NULL) {
			fprintf(to, "%llu\n", (unsigned long long)peak);
			fclose(to);
		}
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
