/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "components.h"

#include <stdlib.h>
#include <string.h>

#include "options.h"

/* From srun to its steps, through the job's environment, of which --export=NONE leaves SLURM_*. A user
 * who sets it gets his job's slice, and who removes it the options that he typed. */
#define WHOLE_JOB "SLURM_VGPU_WHOLE_JOB"

void vgpu_components_new_job(spank_t sp)
{
	vgpu_options_uncarry(sp);
	if (spank_context() == S_CTX_LOCAL)
		setenv(WHOLE_JOB, "1", 1);
}

int vgpu_components_new_step(const char text[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES])
{
	static char first[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES];
	static bool is_first = true;

	unsetenv(WHOLE_JOB);
	if (is_first)
		memcpy(first, text, sizeof(first));
	is_first = false;
	for (int i = 0; i < VGPU_OPTION_COUNT; i++) {
		if (strcmp(first[i], text[i]) == 0)
			continue;
		slurm_error("vgpu: --%s differs between the components of this srun, and Slurm gives all of "
			    "them the last one's: use --gres=vgpu:N,gpumem:MIB,gpucores:PERCENT in each, or one srun "
			    "for each",
			    vgpu_rows[i].name);
		return -1;
	}
	return 0;
}

bool vgpu_components_whole_job(spank_t sp)
{
	char value[8];
	if (spank_getenv(sp, WHOLE_JOB, value, sizeof(value)) != ESPANK_SUCCESS)
		return false;
	spank_unsetenv(sp, WHOLE_JOB); /* the task's own srun makes steps of another kind */
	return true;
}
