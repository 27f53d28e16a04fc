/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "route.h"

#include "libc.h"
#include "symbols.h"

#include <string.h>

/* The driver's libraries look each other's functions up by name and mean their own. */
static bool is_driver(const struct vgpu_libc *libc, const void *address)
{
	Dl_info info;
	const char *name;

	if (libc->dladdr(address, &info) == 0 || info.dli_fname == NULL)
		return false;
	name = strrchr(info.dli_fname, '/');
	name = name != NULL ? name + 1 : info.dli_fname;
	return strncmp(name, "libcuda.so", 10) == 0 || strncmp(name, "libnvidia-", 10) == 0 ||
	       strncmp(name, "libcudadebugger.so", 18) == 0;
}

/* What a search that would find our own export first is to answer. */
static void *answer_behind_us(const struct vgpu_libc *libc, enum vgpu_symbol symbol, const char *name)
{
	/* Exporting cuInit must not make a program believe in a driver that is not there. When it is
	 * not, this also leaves the right message for dlerror. */
	return vgpu_real_address(symbol) != NULL ? vgpu_row[symbol].wrapper : libc->dlsym(RTLD_NEXT, name);
}

static void *answer(const struct vgpu_libc *libc, void *handle, enum vgpu_symbol symbol, const char *name, void *found)
{
	if (handle == RTLD_NEXT)
		return answer_behind_us(libc, symbol, name);
	if (found == NULL)
		return NULL;
	if (found == vgpu_row[symbol].wrapper)
		return answer_behind_us(libc, symbol, name);
	/* RTLD_DEFAULT: a definition in front of ours is the program's own. */
	if (handle == RTLD_DEFAULT || vgpu_real_address(symbol) == NULL)
		return found;
	return vgpu_row[symbol].wrapper;
}

struct vgpu_route vgpu_route_dlsym(void *handle, const char *name, const void *caller)
{
	const struct vgpu_libc *libc = vgpu_libc();
	enum vgpu_symbol symbol = VGPU_SYMBOLS;

	if (libc == NULL)
		return (struct vgpu_route){NULL, NULL};
	if (name != NULL)
		symbol = vgpu_symbol_find(name);
	if (symbol == VGPU_SYMBOLS || is_driver(libc, caller))
		return (struct vgpu_route){NULL, (void *)libc->dlsym};
	return (struct vgpu_route){
		answer(libc, handle, symbol, name, handle == RTLD_NEXT ? NULL : libc->dlsym(handle, name)), NULL};
}

struct vgpu_route vgpu_route_dlvsym(void *handle, const char *name, const void *caller, const char *version)
{
	const struct vgpu_libc *libc = vgpu_libc();
	enum vgpu_symbol symbol = VGPU_SYMBOLS;
	void *found;

	if (libc == NULL)
		return (struct vgpu_route){NULL, NULL};
	if (name != NULL && version != NULL)
		symbol = vgpu_symbol_find(name);
	if (symbol == VGPU_SYMBOLS || is_driver(libc, caller))
		return (struct vgpu_route){NULL, (void *)libc->dlvsym};
	if (handle == RTLD_NEXT) {
		/* Only a driver that has the name in this version can mean that there is a next one. */
		found = libc->dlvsym(RTLD_NEXT, name, version);
		return (struct vgpu_route){found != NULL ? answer_behind_us(libc, symbol, name) : NULL, NULL};
	}
	return (struct vgpu_route){answer(libc, handle, symbol, name, libc->dlvsym(handle, name, version)), NULL};
}
