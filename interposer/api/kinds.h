/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Rows of kind USE are not wrapped and not exported; every other kind is. */
#ifndef VGPU_API_KINDS_H
#define VGPU_API_KINDS_H

/* VGPU_IF_WRAPPED(kind, what): what, and nothing for USE, whose macro below puts an empty second
 * argument in front of it. Adding a kind therefore needs no line here. */
#define VGPU_NOT_WRAPPED_USE unused,
#define VGPU_IF_WRAPPED(kind, ...) VGPU_SECOND(VGPU_NOT_WRAPPED_##kind, __VA_ARGS__, unused)
#define VGPU_SECOND(...) VGPU_SECOND_(__VA_ARGS__)
#define VGPU_SECOND_(first, second, ...) second

#endif
