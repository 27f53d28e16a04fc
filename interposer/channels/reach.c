/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver's calls of ioctl come to ours where this library is first in the order in which names are
 * searched. Behind a guard the C library is, and so it is for what was opened with RTLD_DEEPBIND: there ours
 * is put where the driver keeps the address. */
#include "base/atomics.h"
#include "base/futex.h"
#include "base/imports.h"
#include "base/libc.h"
#include "channels/channels.h"
#include "channels/ioctl.h"
#include "channels/own.h"

#include <stddef.h>

/* The function that a call from this place would reach. Before the first call it is not known; the name then
 * means the same as to this library, which was loaded together with the driver. */
static void *before(const struct vgpu_imports *imports, uint32_t index, void *by_name)
{
	void *stands = __atomic_load_n(imports->place[index], __ATOMIC_ACQUIRE);

	return vgpu_imports_has(imports, stands) ? by_name : stands;
}

/* Whether all of its calls come to ours. */
static bool take_places(const struct vgpu_imports *imports, void *by_name)
{
	bool all = imports->all && imports->count != 0;

	for (uint32_t i = 0; i < imports->count; i++) {
		if (!vgpu_ioctl_is_ours(__atomic_load_n(imports->place[i], __ATOMIC_ACQUIRE)) &&
		    !vgpu_imports_set(imports, i, vgpu_ioctl_in_place_of(before(imports, i, by_name))))
			all = false;
	}
	return all;
}

void vgpu_channels_reach(struct vgpu_process *p, const void *of_driver)
{
	struct vgpu_channels *channels = vgpu_channels(p);
	const struct vgpu_libc *libc = vgpu_libc();
	struct link_map *map = NULL;
	struct vgpu_imports imports;
	bool reached = false;
	void *by_name;
	Dl_info info;

	/* The dynamic linker is asked before the lock: it has one of its own. */
	if (libc != NULL && libc->dladdr1(of_driver, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 &&
	    map != NULL && vgpu_imports_find(map, info.dli_fbase, "ioctl", &imports)) {
		by_name = libc->dlsym(RTLD_DEFAULT, "ioctl");
		vgpu_mutex_lock(&channels->reaching, VGPU_RANK_REACHING);
		reached = take_places(&imports, by_name);
		vgpu_mutex_unlock(&channels->reaching);
	}
	vgpu_channels_unseen(p, !reached);
}
