/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * For code that runs before the C library's dlsym is known. A wrapper of strcmp may look for the real one by
 * dlsym, as the sanitizers do: until there is an answer nothing of the C library may be called. */
#ifndef VGPU_BASE_TEXT_H
#define VGPU_BASE_TEXT_H

#include <stdbool.h>

static inline bool vgpu_same_text(const char *text, const char *other)
{
	for (; *text != '\0' && *text == *other; text++)
		other++;
	return *text == *other;
}

#endif
