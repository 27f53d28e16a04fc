/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

int failures;
static int failed_cases;
static int passed_cases;
static unsigned this_try;
static char root[240];

enum { CHECKS_FAILED = 1 };

static void need(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "harness: %s: %s\n", what, strerror(errno));
		_exit(99);
	}
}

void remove_gpus(void)
{
	char command[512];

	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	if (root[0] != '\0' && system(command) != 0)
		fprintf(stderr, "harness: %s stays\n", root);
}

void gpus(unsigned context_mib)
{
	const char *tmp = getenv("TMPDIR");
	char path[300];
	FILE *conf;

	/* A program that a case runs again works in the same folder. */
	if (root[0] == '\0' && getenv("VGPU_TEST_ROOT") != NULL) {
		snprintf(root, sizeof(root), "%s", getenv("VGPU_TEST_ROOT"));
	} else if (root[0] == '\0') {
		snprintf(root, sizeof(root), "%s/vgpu-test-XXXXXX", tmp != NULL ? tmp : "/tmp");
		need(mkdtemp(root) != NULL, root);
		chmod(root, 0755);
		setenv("VGPU_TEST_ROOT", root, 1);
	}
	snprintf(path, sizeof(path), "%s/gpus", root);
	mkdir(path, 0777);
	setenv("SIMGPU_DIR", path, 1);
	snprintf(path, sizeof(path), "%s/gpus/simgpu.conf", root);
	conf = fopen(path, "w");
	need(conf != NULL, path);
	fprintf(conf,
		"devices=2\nmem_mib=4096\ncontext_mib=%u\ndevice0.uuid=" UUID0 "\ndevice1.uuid=" UUID1 "\n",
		context_mib);
	fclose(conf);
}

void gpus_also(const char *line)
{
	char path[300];
	FILE *conf;

	snprintf(path, sizeof(path), "%s/gpus/simgpu.conf", root);
	conf = fopen(path, "a");
	need(conf != NULL, path);
	fprintf(conf, "%s\n", line);
	fclose(conf);
}

static void *map_file(const char *path, size_t size, bool fresh)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | (fresh ? O_CREAT | O_TRUNC : 0), 0600);
	void *page;

	need(fd >= 0 && (!fresh || ftruncate(fd, (off_t)size) == 0), path);
	page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	need(page != MAP_FAILED, path);
	close(fd);
	return page;
}

struct step step_make(uint32_t job, uint32_t step_id, uint64_t step_mib, uint64_t job_mib)
{
	struct step step;
	struct stat st;
	char path[600];
	char job_ledger[600];
	bool fresh;

	/* What an earlier try used stands in its jobs' ledgers. */
	if (this_try > 1)
		job += 1000 * (this_try - 1);
	snprintf(path, sizeof(path), "%s/jobs", root);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/jobs/%u", root, job);
	mkdir(path, 0755);
	snprintf(job_ledger, sizeof(job_ledger), "%s/jobs/%u/ledger", root, job);
	snprintf(path, sizeof(path), "%s/jobs/%u/steps", root, job);
	mkdir(path, 0755);
	snprintf(step.folder, sizeof(step.folder), "%s/jobs/%u/steps/%u", root, job, step_id);
	mkdir(step.folder, 0755);

	fresh = stat(job_ledger, &st) != 0;
	step.ledger = map_file(job_ledger, sizeof(*step.ledger), fresh);
	if (fresh) {
		step.ledger->magic = VGPU_LEDGER_MAGIC;
		step.ledger->layout_version = VGPU_LAYOUT_VERSION;
		step.ledger->size_bytes = sizeof(*step.ledger);
		step.ledger->job_id = job;
		step.ledger->device_count = 1;
	}
	snprintf(path, sizeof(path), "%s/ledger", step.folder);
	unlink(path);
	need(link(job_ledger, path) == 0, path);

	snprintf(path, sizeof(path), "%s/limits", step.folder);
	step.limits = map_file(path, sizeof(*step.limits), true);
	step.limits->magic = VGPU_LIMITS_MAGIC;
	step.limits->layout_version = VGPU_LAYOUT_VERSION;
	step.limits->size_bytes = sizeof(*step.limits);
	step.limits->job_id = job;
	step.limits->step_id = step_id;
	step.limits->uid = getuid();
	step.limits->device_count = 1;
	need(stat(job_ledger, &st) == 0, job_ledger);
	step.limits->ledger_device = st.st_dev;
	step.limits->ledger_inode = st.st_ino;
	snprintf(step.limits->job_step, sizeof(step.limits->job_step), "%u.%u", job, step_id);
	strcpy(step.limits->device[0].uuid, UUID0);
	step.limits->device[0].step_mem_bytes = step_mib * MIB;
	step.limits->device[0].job_mem_bytes = job_mib * MIB;
	step.limits->device[0].device_mem_bytes = 4096 * MIB;
	step_enter(&step);
	return step;
}

struct step step_of_environment(void)
{
	struct step step;
	char path[600];

	snprintf(step.folder, sizeof(step.folder), "%s", getenv(VGPU_STEP_DIR_ENV));
	snprintf(path, sizeof(path), "%s/limits", step.folder);
	step.limits = map_file(path, sizeof(*step.limits), false);
	snprintf(path, sizeof(path), "%s/ledger", step.folder);
	step.ledger = map_file(path, sizeof(*step.ledger), false);
	return step;
}

void step_enter(const struct step *step)
{
	setenv(VGPU_STEP_DIR_ENV, step->folder, 1);
}

uint64_t step_slots_bytes(const struct step *step)
{
	uint64_t sum = 0;

	for (int i = 0; i < VGPU_MAX_PROCS; i++) {
		if (__atomic_load_n(&step->ledger->slot[i].state, __ATOMIC_ACQUIRE) == 1)
			sum += __atomic_load_n(&step->ledger->slot[i].used_bytes[0], __ATOMIC_RELAXED);
	}
	return sum;
}

uint64_t driver_held_bytes(int device)
{
	size_t all = 0;

	CHECK_IS(cuSimHeld(device, NULL, &all), CUDA_SUCCESS);
	return all;
}

uint64_t step_used_bytes(const struct step *step)
{
	CHECK_IS(step_slots_bytes(step), step->ledger->used_bytes[0]);
	return step->ledger->used_bytes[0];
}

uint64_t driver_used_bytes(int device)
{
	char command[600];
	char line[64] = "";
	FILE *pipe;

	snprintf(command, sizeof(command),
		 "env -u LD_PRELOAD '%s/nvidia-smi' -i %d --query-gpu=memory.used --format=csv,noheader,nounits",
		 getenv("VGPU_TEST_SIM"), device);
	pipe = popen(command, "r");
	need(pipe != NULL, command);
	need(fgets(line, sizeof(line), pipe) != NULL, command);
	pclose(pipe);
	return strtoull(line, NULL, 10) * MIB;
}

void cuda_begin(CUdevice ordinal)
{
	CUcontext context;
	CUdevice device;

	if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
	    cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
	    cuCtxSetCurrent(context) != CUDA_SUCCESS) {
		fprintf(stderr, "harness: CUDA does not start\n");
		_exit(98);
	}
}

void cuda_begin_not_granted(const struct step *step)
{
	step->limits->device[1] = step->limits->device[0];
	strcpy(step->limits->device[1].uuid, UUID1);
	step->limits->device_count = 2;
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	step->limits->device_count = 1;
	cuda_begin(1);
}

static int status_of_case(void (*function)(void))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		failures = 0;
		function();
		fflush(NULL);
		_exit(failures == 0 ? 0 : CHECKS_FAILED);
	}
	need(waitpid(pid, &status, 0) == pid, "waitpid");
	return status;
}

void run_case(const char *name, void (*function)(void), unsigned tries)
{
	bool checks_failed, late;
	int status;

	for (this_try = 1;; this_try++) {
		status = status_of_case(function);
		checks_failed = WIFEXITED(status) && WEXITSTATUS(status) == CHECKS_FAILED;
		if (this_try == tries || !checks_failed || !CLOCK_IS_JUDGED)
			break;
		printf("AGAIN %s\n", name);
	}
	late = tries > 1 && checks_failed && !CLOCK_IS_JUDGED;
	if (late || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
		passed_cases++;
		printf("PASS %s%s\n", name, late ? " (late)" : "");
	} else {
		failed_cases++;
		printf("FAIL %s (%s %d)\n", name, WIFSIGNALED(status) ? "signal" : "status",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	fflush(stdout);
}

int run_self(const char *argument)
{
	int status;
	pid_t pid = fork();

	need(pid >= 0, "fork");
	if (pid == 0) {
		execl("/proc/self/exe", "self", argument, NULL);
		_exit(97);
	}
	need(waitpid(pid, &status, 0) == pid, "waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

int summary(void)
{
	remove_gpus();
	printf("%d passed, %d failed\n", passed_cases, failed_cases);
	return failed_cases == 0 ? 0 : 1;
}

void library_quiet(void)
{
	int keep = fcntl(2, F_DUPFD_CLOEXEC, 3);
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	FILE *kept = fdopen(keep, "w");

	need(kept != NULL && null >= 0 && dup2(null, 2) == 2, "/dev/null");
	setvbuf(kept, NULL, _IONBF, 0);
	stderr = kept;
	close(null);
}

static int caught_fd = -1;
static int plain_fd = -1;
static char caught[4096];

void stderr_catch(void)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/stderr-%d", root, (int)getpid());
	caught_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	need(caught_fd >= 0, path);
	fflush(stderr);
	plain_fd = dup(2);
	dup2(caught_fd, 2);
}

const char *stderr_caught(void)
{
	ssize_t n;

	fflush(stderr);
	dup2(plain_fd, 2);
	n = pread(caught_fd, caught, sizeof(caught) - 1, 0);
	caught[n > 0 ? n : 0] = '\0';
	return caught;
}
