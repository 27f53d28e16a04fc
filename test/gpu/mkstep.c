/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Prepares a step's folder as the prolog and the plugin do, so that the interposer can be tried on
 * a machine without Slurm; and says what a step's ledger holds. */
#include "api/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1ull << 20)

struct wish {
	const char *dir, *uuid;
	unsigned long long job, step, uid, mem_mib, device_mib, index, cores;
};

static int usage(FILE *to, int status)
{
	fputs("usage: mkstep --dir DIR --gpu UUID[,UUID...] --mem MIB [--device-mem MIB] [--index N] [--job "
	      "N]\n"
	      "              [--step N] [--uid N] [--cores PERCENT]\n"
	      "       mkstep --show FOLDER\n"
	      "Makes DIR/jobs/JOB/steps/STEP with its limits page and ledger, and DIR/pages/JOB with the job's page "
	      "of\n"
	      "channel groups, and prints the first. With --cores the library holds that cap, as where a driver "
	      "refuses\n"
	      "vgpud. --show prints, tab-separated, of the first GPU: limit, use now, highest use, refusals, live "
	      "processes.\n",
	      to);
	return status;
}

/* Says errno of what was being done; 1. */
static int complain(const char *what)
{
	fprintf(stderr, "mkstep: %s: %s\n", what, strerror(errno));
	return 1;
}

/* NULL with errno set. Created, and given its size and mode, when the flags say so. */
static void *map_page(const char *path, size_t size, int flags, mode_t mode)
{
	int fd = open(path, flags | O_CLOEXEC, mode);
	int write = (flags & O_ACCMODE) == O_RDWR;
	void *page = MAP_FAILED;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (!write || fchmod(fd, mode) == 0) {
		if ((flags & O_CREAT) == 0 || ftruncate(fd, (off_t)size) == 0)
			if (fstat(fd, &st) == 0 && st.st_size >= (off_t)size)
				page = mmap(NULL, size, PROT_READ | (write ? PROT_WRITE : 0), MAP_SHARED, fd,
					    0);
	}
	close(fd);
	return page == MAP_FAILED ? NULL : page;
}

static int make_folders(const struct wish *w, char folder[static 512])
{
	const char *format[] = {"%s", "%s/jobs", "%s/jobs/%llu", "%s/jobs/%llu/steps",
				"%s/jobs/%llu/steps/%llu"};

	for (size_t i = 0; i < sizeof(format) / sizeof(format[0]); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(folder, 512, format[i], w->dir, w->job, w->step);
#pragma GCC diagnostic pop
		if (mkdir(folder, 0755) != 0 && errno != EEXIST)
			return complain(folder);
	}
	return 0;
}

/* All with the same limits; their number. */
static uint32_t set_devices(struct vgpu_limits *limits, const struct wish *w)
{
	const char *uuid = w->uuid;
	uint32_t count = 0;

	while (*uuid != '\0' && count < VGPU_MAX_DEVICES) {
		int length = (int)strcspn(uuid, ",");

		limits->device[count] = (struct vgpu_limits_device){
			.step_mem_bytes = w->mem_mib * MIB,
			.job_mem_bytes = w->mem_mib * MIB,
			.device_mem_bytes = w->device_mib * MIB,
			.nvml_index = (uint32_t)w->index + count,
			.minor = (uint32_t)w->index + count,
			.sm_percent = (uint32_t)w->cores,
			.job_sm_percent = (uint32_t)w->cores,
			.gated = w->cores != 0,
		};
		snprintf(limits->device[count].uuid, sizeof(limits->device[count].uuid), "%.*s", length,
			 uuid);
		uuid += length;
		uuid += *uuid == ',';
		count++;
	}
	return count;
}

/* The job's page of channel groups, empty. */
static int make_groups(const struct wish *w, char pages_dir[static VGPU_PAGES_DIR_BYTES])
{
	struct vgpu_groups *groups;
	char path[VGPU_PAGES_DIR_BYTES + 16];

	snprintf(path, sizeof(path), "%s/pages", w->dir);
	snprintf(pages_dir, VGPU_PAGES_DIR_BYTES, "%s/pages/%llu", w->dir, w->job);
	if (mkdir(path, 0755) != 0 && errno != EEXIST)
		return complain(path);
	if (mkdir(pages_dir, 0755) != 0 && errno != EEXIST)
		return complain(pages_dir);
	snprintf(path, sizeof(path), "%s/" VGPU_GROUPS_FILE, pages_dir);
	groups = map_page(path, sizeof(*groups), O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (groups == NULL || chown(path, (uid_t)w->uid, (gid_t)-1) != 0)
		return complain(path);
	groups->magic = VGPU_GROUPS_MAGIC;
	groups->layout_version = VGPU_VGPUD_VERSION;
	groups->size_bytes = sizeof(*groups);
	groups->job_id = (uint32_t)w->job;
	munmap(groups, sizeof(*groups));
	return 0;
}

static int make_step(const struct wish *w)
{
	struct vgpu_limits *limits;
	struct vgpu_ledger *ledger;
	char folder[512], path[560], job_ledger[560];

	umask(022);
	if (make_folders(w, folder) != 0)
		return 1;
	snprintf(job_ledger, sizeof(job_ledger), "%s/jobs/%llu/ledger", w->dir, w->job);
	ledger = map_page(job_ledger, sizeof(*ledger), O_RDWR | O_CREAT, 0600);
	if (ledger == NULL || chown(job_ledger, (uid_t)w->uid, (gid_t)-1) != 0)
		return complain(job_ledger);
	ledger->magic = VGPU_LEDGER_MAGIC;
	ledger->layout_version = VGPU_LAYOUT_VERSION;
	ledger->size_bytes = sizeof(*ledger);
	ledger->job_id = (uint32_t)w->job;
	snprintf(path, sizeof(path), "%s/ledger", folder);
	if (link(job_ledger, path) != 0 && errno != EEXIST)
		return complain(path);

	snprintf(path, sizeof(path), "%s/limits", folder);
	limits = map_page(path, sizeof(*limits), O_RDWR | O_CREAT, 0644);
	if (limits == NULL)
		return complain(path);
	*limits = (struct vgpu_limits){
		.magic = VGPU_LIMITS_MAGIC,
		.layout_version = VGPU_LAYOUT_VERSION,
		.size_bytes = sizeof(*limits),
		.job_id = (uint32_t)w->job,
		.step_id = (uint32_t)w->step,
		.uid = (uint32_t)w->uid,
		.flags = w->cores != 0 ? VGPU_GATED : 0,
	};
	struct stat st;
	if (stat(job_ledger, &st) != 0)
		return complain(job_ledger);
	limits->ledger_device = st.st_dev;
	limits->ledger_inode = st.st_ino;
	snprintf(limits->job_step, sizeof(limits->job_step), "%llu.%llu", w->job, w->step);
	ledger->device_count = limits->device_count = set_devices(limits, w);
	if (make_groups(w, limits->pages_dir) != 0)
		return 1;
	puts(folder);
	return 0;
}

static int show(const char *folder)
{
	const struct vgpu_limits *limits;
	const struct vgpu_ledger *ledger;
	unsigned live = 0;
	char path[560];

	snprintf(path, sizeof(path), "%s/limits", folder);
	limits = map_page(path, sizeof(*limits), O_RDONLY, 0);
	if (limits == NULL)
		return complain(path);
	snprintf(path, sizeof(path), "%s/ledger", folder);
	ledger = map_page(path, sizeof(*ledger), O_RDONLY, 0);
	if (ledger == NULL)
		return complain(path);
	for (unsigned i = 0; i < VGPU_MAX_PROCS; i++)
		live += ledger->slot[i].state == 1;
	printf("%llu\t%llu\t%llu\t%llu\t%u\n", (unsigned long long)limits->device[0].step_mem_bytes,
	       (unsigned long long)ledger->used_bytes[0], (unsigned long long)ledger->peak_bytes[0],
	       (unsigned long long)ledger->refusals[0], live);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "dir", required_argument, NULL, 'd' },  { "gpu", required_argument, NULL, 'g' },
		{ "mem", required_argument, NULL, 'm' },  { "device-mem", required_argument, NULL, 'D' },
		{ "job", required_argument, NULL, 'j' },  { "step", required_argument, NULL, 's' },
		{ "uid", required_argument, NULL, 'u' },  { "cores", required_argument, NULL, 'c' },
		{ "index", required_argument, NULL, 'i' }, { "show", required_argument, NULL, 'S' },
		{ "help", no_argument, NULL, 'h' },	  { NULL, 0, NULL, 0 },
	};
	struct wish w = { .job = 1, .uid = getuid() };
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		unsigned long long *number = NULL;
		char *end;

		switch (c) {
		case 'd': w.dir = optarg; break;
		case 'g': w.uuid = optarg; break;
		case 'm': number = &w.mem_mib; break;
		case 'D': number = &w.device_mib; break;
		case 'j': number = &w.job; break;
		case 's': number = &w.step; break;
		case 'u': number = &w.uid; break;
		case 'c': number = &w.cores; break;
		case 'i': number = &w.index; break;
		case 'S': return show(optarg);
		case 'h': return usage(stdout, 0);
		default: return usage(stderr, 2);
		}
		if (number == NULL)
			continue;
		*number = strtoull(optarg, &end, 10);
		if (*optarg < '0' || *optarg > '9' || *end != '\0')
			return usage(stderr, 2);
	}
	if (optind != argc || w.dir == NULL || w.uuid == NULL || w.mem_mib == 0 || w.cores > 100)
		return usage(stderr, 2);
	if (w.device_mib == 0)
		w.device_mib = w.mem_mib;
	return make_step(&w);
}
