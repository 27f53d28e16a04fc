/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The pages of a step that has ended, which its user has mounted elsewhere in time. */
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

int main(void)
{
	CASE(a_page_that_was_taken_away_is_refused);
	return summary();
}
