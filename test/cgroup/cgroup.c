/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Plays Slurm's cgroup/v2 where that does not start (it refuses a machine with cgroup v1 beside v2): puts
 * slurmstepd into ROOT/job_N/step_M/slurm before other plugins are asked, as proctrack/cgroup does, and
 * removes the folders at the end, as far as nobody is in them. The line in plugstack.conf has ROOT, an
 * existing folder of cgroup v2. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(cgroup, 1)

static char job_folder[PATH_MAX / 2], step_folder[PATH_MAX - 16], slurm_folder[PATH_MAX];

static int move_to(const char *folder)
{
	char path[PATH_MAX + 16];
	int fd, rc = -1;

	snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "0", 1) == 1)
		rc = 0;
	if (fd >= 0)
		close(fd);
	return rc;
}

int slurm_spank_init(spank_t sp, int ac, char *av[])
{
	uint32_t job, step;
	char name[16];

	if (spank_context() != S_CTX_REMOTE || ac != 1)
		return 0;
	if (spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
		return -1;
	if (step == SLURM_EXTERN_CONT) /* its plugins are asked before it is moved */
		return 0;
	snprintf(name, sizeof(name), step == SLURM_BATCH_SCRIPT ? "batch" : "%u", step);
	snprintf(job_folder, sizeof(job_folder), "%s/job_%u", av[0], job);
	snprintf(step_folder, sizeof(step_folder), "%s/step_%s", job_folder, name);
	snprintf(slurm_folder, sizeof(slurm_folder), "%s/slurm", step_folder);
	mkdir(job_folder, 0755);
	mkdir(step_folder, 0755);
	mkdir(slurm_folder, 0755);
	return move_to(slurm_folder);
}

int slurm_spank_exit(spank_t sp, int ac, char *av[])
{
	(void)sp;
	if (spank_context() != S_CTX_REMOTE || ac != 1 || *slurm_folder == '\0')
		return 0;
	move_to(av[0]);
	rmdir(slurm_folder);
	rmdir(step_folder);
	rmdir(job_folder);
	return 0;
}
