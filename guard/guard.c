/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What each of the driver's names stands for: the interposer's function where it has one, else the driver's.
 * Both libraries came with this one. LIBRARY is 0 for CUDA and 1 for NVML, ABSENT what a function returns
 * that this driver does not have. */
#include <stddef.h>

#define COUNT (sizeof(text) / sizeof(text[0]))

static const char *const text[] = {
#define name(symbol) #symbol,
#include NAMES_C
#undef name
};

extern void *guard_address[COUNT] __attribute__((visibility("hidden")));
void *guard_address[COUNT];

/* In libslurm-vgpu.so. */
void *vgpu_guarded_function(int library, const char *name);

static int absent(void)
{
	return ABSENT;
}

__attribute__((visibility("hidden"))) void *guard_find(unsigned int index);
void *guard_find(unsigned int index)
{
	void *address = vgpu_guarded_function(LIBRARY, text[index]);

	/* Asked again: it may come with a later library. */
	if (address == NULL)
		return (void *)absent;
	__atomic_store_n(&guard_address[index], address, __ATOMIC_RELEASE);
	return address;
}
