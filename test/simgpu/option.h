/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Options of the programs that are whole numbers. */
#ifndef SIMGPU_OPTION_H
#define SIMGPU_OPTION_H

/* False, and says so, when the text is none from least to most. */
int option_number(const char *program, const char *option, const char *text, unsigned long long least,
		  unsigned long long most, unsigned long long *value);

#endif
