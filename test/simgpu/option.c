/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "option.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int option_number(const char *program, const char *option, const char *text, unsigned long long least,
		  unsigned long long most, unsigned long long *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *value >= least &&
	    *value <= most)
		return 1;
	fprintf(stderr, "%s: --%s=%s: not a whole number from %llu to %llu\n", program, option, text, least,
		most);
	return 0;
}
