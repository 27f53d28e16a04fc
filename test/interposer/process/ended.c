/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pages of a later build, and those of a step that has ended, which its user has mounted elsewhere. */
#include "harness.h"
#include "refused.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static void a_page_that_was_taken_away_is_refused(void)
{
	struct step step;
	char limits[600], kept[600];

	gpus(0);
	step = step_make(1000 + (uint32_t)getpid(), 0, 100, 100);
	snprintf(limits, sizeof(limits), "%s/limits", step.folder);
	snprintf(kept, sizeof(kept), "%s/kept", step.folder);
	CHECK_IS(rename(limits, kept), 0);
	CHECK_IS(mknod(limits, S_IFREG | 0644, 0), 0);
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
		printf("SKIP a_page_that_was_taken_away_is_refused: mounts are forbidden here\n");
		return;
	}
	CHECK_IS(mount(kept, limits, NULL, MS_BIND, NULL), 0);
	CHECK_IS(unlink(kept), 0);
	check_refused("of a step that has ended");
}

/* Of a later build, which knows fields that this library does not. */
static void longer_pages_are_taken(void)
{
	struct step step;
	char path[600];

	gpus(0);
	step = step_make(1000 + (uint32_t)getpid(), 0, 100, 100);
	snprintf(path, sizeof(path), "%s/limits", step.folder);
	CHECK_IS(truncate(path, 4000), 0);
	step.limits->size_bytes = 4000;
	snprintf(path, sizeof(path), "%s/ledger", step.folder);
	CHECK_IS(truncate(path, sizeof(*step.ledger) + 8192), 0);
	step.ledger->size_bytes += 8192;
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
}

int main(void)
{
	CASE(longer_pages_are_taken);
	CASE(a_page_that_was_taken_away_is_refused);
	return summary();
}
