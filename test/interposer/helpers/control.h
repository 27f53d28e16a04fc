/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef VGPU_TEST_CONTROL_H
#define VGPU_TEST_CONTROL_H

#include <stdint.h>

struct made { /* NVOS64_PARAMETERS; NVOS21_PARAMETERS has status instead of the rights' upper half */
	uint32_t client, parent, object, class;
	uint64_t params;
	uint32_t rest[6];
};

struct by_address {
	uint32_t number, bytes;
	uint64_t address;
};

struct freed {
	uint32_t client, parent, object, status;
};

extern int control_fails; /* calls fail with EIO */
extern unsigned int control_calls;

#endif
