/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "route/route.h"

#include "api/symbols.h"
#include "base/image.h"
#include "base/libc.h"
#include "base/text.h"
#include "route/loaded.h"
#include "route/lookup.h"
#include "tuning.h"

#include <stdbool.h>
#include <sys/auxv.h>

/* Images whose lookups are left alone. They stay loaded. */
static const void *known_driver[VGPU_KNOWN_DRIVERS];

static bool is_known_driver(const void *base)
{
	for (int i = 0; i < VGPU_KNOWN_DRIVERS; i++) {
		if (__atomic_load_n(&known_driver[i], __ATOMIC_ACQUIRE) == base)
			return true;
	}
	return false;
}

static void know(const struct vgpu_libc *libc, const struct link_map *map, const void *base)
{
	const void *none = NULL;

	if (libc->dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) != map)
		return;
	for (int i = 0; i < VGPU_KNOWN_DRIVERS; i++, none = NULL) {
		if (__atomic_compare_exchange_n(&known_driver[i], &none, base, 0, __ATOMIC_RELEASE,
						__ATOMIC_RELAXED))
			return;
	}
}

static bool is_program(const struct vgpu_libc *libc, const void *base)
{
	Dl_info program;

	return libc->dladdr((void *)getauxval(AT_ENTRY), &program) != 0 && program.dli_fbase == base;
}

/* libcuda and NVML mean their own functions when they look them up by name; a libcuda that only loads
 * another one, as WSL's, would run in circles. A library counts as the driver by the symbols that it defines
 * and by the owner of its file: any name can be had by anybody. The driver's other libraries look up none of
 * these names (580: of all of them, NVML alone asks for anything of CUDA, cuGetExportTable), and if they did,
 * they would be counted. */
static bool is_driver(const struct vgpu_libc *libc, const void *address)
{
	struct link_map *map = NULL;
	struct vgpu_image image;
	Dl_info info;

	if (libc->dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
		return false;
	if (is_known_driver(info.dli_fbase))
		return true;
	if (!vgpu_image_of_map(map, &image) || !vgpu_real_is_of_driver(&image) ||
	    is_program(libc, info.dli_fbase) || !vgpu_loaded_from_roots_file(address))
		return false;
	know(libc, map, info.dli_fbase);
	return true;
}

/* Whether the program gets the wrapper for what was found. Another library that has one of the names, and is
 * no driver, is not ours to judge. */
static bool is_wrapped(const struct vgpu_libc *libc, enum vgpu_symbol symbol, void *found)
{
	Dl_info info;

	if (vgpu_real_address(symbol) != NULL)
		return true;
	return libc->dladdr(found, &info) != 0 && !is_program(libc, info.dli_fbase) &&
	       vgpu_real_adopt(symbol, found);
}

/* The answer to a search that would find our own export first. */
static void *answer_behind_us(const struct vgpu_libc *libc, enum vgpu_symbol symbol, const char *name)
{
	void *next;

	if (vgpu_real_address(symbol) != NULL)
		return vgpu_row[symbol].wrapper;
	/* Exporting cuInit must not make a program believe in a driver that is not there. When it is
	 * not, this also leaves the right message for dlerror. */
	next = libc->dlsym(RTLD_NEXT, name);
	return next != NULL && is_wrapped(libc, symbol, next) ? vgpu_row[symbol].wrapper : next;
}

static void *answer(const struct vgpu_libc *libc, void *handle, enum vgpu_symbol symbol, const char *name,
		    void *found)
{
	if (handle == RTLD_NEXT)
		return answer_behind_us(libc, symbol, name);
	if (found == NULL)
		return NULL;
	if (found == vgpu_row[symbol].wrapper)
		return answer_behind_us(libc, symbol, name);
	/* RTLD_DEFAULT: a definition in front of ours is the program's own. */
	return handle != RTLD_DEFAULT && is_wrapped(libc, symbol, found) ? vgpu_row[symbol].wrapper : found;
}

/* Not there where the library is linked into a program, as the sanitizers want it (interposer.mk). */
#pragma weak vgpu_dlsym
#pragma weak vgpu_dlvsym
#pragma weak vgpu_dlsym_behind
#pragma weak vgpu_dlvsym_behind

enum own { DLSYM, DLVSYM, OWN };
static const char *const own_name[OWN] = {"dlsym", "dlvsym"};

/* The lookups themselves: by the C library's own, asked for by name, every other name would be found past
 * these. */
static enum own own_lookup(const char *name)
{
	if (name == NULL || name[0] != 'd' || name[1] != 'l')
		return OWN;
	return vgpu_same_text(name, own_name[DLSYM])    ? DLSYM
	       : vgpu_same_text(name, own_name[DLVSYM]) ? DLVSYM
							: OWN;
}

/* Where names go that are none of ours: to the next one behind us, the C library's but where a preload, an
 * overlay over what a game draws for one, has one of its own. Names of ours never get there: what it would
 * answer counts nothing. */
static void *next_lookup(const struct vgpu_libc *libc, enum own own)
{
	static void *known[OWN];
	void *next = __atomic_load_n(&known[own], __ATOMIC_RELAXED);

	if (next != NULL)
		return next;
	next = libc->dlsym(RTLD_NEXT, own_name[own]);
	if (next == NULL)
		next = own == DLSYM ? (void *)libc->dlsym : (void *)libc->dlvsym;
	__atomic_store_n(&known[own], next, __ATOMIC_RELAXED);
	return next;
}

/* The C library's, or that of another namespace's C library. Somebody else's is his. */
static bool is_c_librarys(const struct vgpu_libc *libc, void *found)
{
	struct link_map *map = NULL;
	Dl_info info;

	if (found == (void *)libc->dlsym || found == (void *)libc->dlvsym)
		return true;
	return found != NULL && libc->dladdr1(found, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 &&
	       map != NULL && !is_program(libc, info.dli_fbase) &&
	       libc->dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) != map;
}

/* The answer to a lookup of the lookups themselves, NULL where that is none of ours. If an overlay asks for
 * the lookup behind it, that one must not ask the overlay again: it may jump there with its caller's
 * address. */
static void *answer_own(const struct vgpu_libc *libc, void *handle, enum own own, const void *caller,
			void *found)
{
	Dl_info info;

	if (!is_c_librarys(libc, found) && (handle != RTLD_NEXT || found == NULL))
		return NULL;
	if (handle == RTLD_NEXT && libc->dladdr(caller, &info) != 0 && is_program(libc, info.dli_fbase))
		return own == DLSYM ? (void *)vgpu_dlsym : (void *)vgpu_dlvsym;
	return own == DLSYM ? (void *)vgpu_dlsym_behind : (void *)vgpu_dlvsym_behind;
}

static struct vgpu_route route_dlsym(void *handle, const char *name, const void *caller, bool behind)
{
	const struct vgpu_libc *libc = vgpu_libc();
	enum vgpu_symbol symbol = VGPU_SYMBOLS;
	enum own own = own_lookup(name);
	void *answered = NULL;

	if (libc == NULL)
		return (struct vgpu_route){NULL, NULL};
	if (name != NULL)
		symbol = vgpu_symbol_find(name);
	if (own != OWN && vgpu_dlsym != NULL)
		answered = answer_own(libc, handle, own, caller, libc->dlsym(handle, name));
	if (answered != NULL)
		return (struct vgpu_route){answered, NULL};
	if (symbol == VGPU_SYMBOLS && own == OWN && !behind)
		return (struct vgpu_route){NULL, next_lookup(libc, DLSYM)};
	if (symbol == VGPU_SYMBOLS || is_driver(libc, caller))
		return (struct vgpu_route){NULL, (void *)libc->dlsym};
	return (struct vgpu_route){
		answer(libc, handle, symbol, name, handle == RTLD_NEXT ? NULL : libc->dlsym(handle, name)),
		NULL};
}

static struct vgpu_route route_dlvsym(void *handle, const char *name, const void *caller, const char *version,
				      bool behind)
{
	const struct vgpu_libc *libc = vgpu_libc();
	enum vgpu_symbol symbol = VGPU_SYMBOLS;
	enum own own = own_lookup(name);
	void *answered = NULL;
	void *found;

	if (libc == NULL)
		return (struct vgpu_route){NULL, NULL};
	if (name != NULL && version != NULL)
		symbol = vgpu_symbol_find(name);
	if (own != OWN && vgpu_dlvsym != NULL)
		answered = answer_own(libc, handle, own, caller, libc->dlvsym(handle, name, version));
	if (answered != NULL)
		return (struct vgpu_route){answered, NULL};
	if (symbol == VGPU_SYMBOLS && own == OWN && !behind)
		return (struct vgpu_route){NULL, next_lookup(libc, DLVSYM)};
	if (symbol == VGPU_SYMBOLS || is_driver(libc, caller))
		return (struct vgpu_route){NULL, (void *)libc->dlvsym};
	if (handle == RTLD_NEXT) {
		/* Only a driver that has the name in this version can mean that there is a next one. */
		found = libc->dlvsym(RTLD_NEXT, name, version);
		return (struct vgpu_route){found != NULL ? answer_behind_us(libc, symbol, name) : NULL, NULL};
	}
	return (struct vgpu_route){answer(libc, handle, symbol, name, libc->dlvsym(handle, name, version)),
				   NULL};
}

struct vgpu_route vgpu_route_dlsym(void *handle, const char *name, const void *caller)
{
	return route_dlsym(handle, name, caller, false);
}

struct vgpu_route vgpu_route_dlsym_behind(void *handle, const char *name, const void *caller)
{
	return route_dlsym(handle, name, caller, true);
}

struct vgpu_route vgpu_route_dlvsym(void *handle, const char *name, const void *caller, const char *version)
{
	return route_dlvsym(handle, name, caller, version, false);
}

struct vgpu_route vgpu_route_dlvsym_behind(void *handle, const char *name, const void *caller,
					   const char *version)
{
	return route_dlvsym(handle, name, caller, version, true);
}
