/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The owner of the file that an image was loaded from, as the kernel has mapped it. The dynamic linker's name
 * for an image may be any text: for a program it is argv[0], for a library the path, with all links, by which
 * it was loaded. */
#ifndef VGPU_ROUTE_LOADED_H
#define VGPU_ROUTE_LOADED_H

#include <limits.h>
#include <stdbool.h>

/* Whether the file that is mapped at the address is still there, root's, and writable by root alone. */
bool vgpu_loaded_from_roots_file(const void *address);

/* The path of the file that is mapped at the address; false when there is none. */
bool vgpu_loaded_path(const void *address, char path[static PATH_MAX]);

#endif
