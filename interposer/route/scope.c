/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Names are looked up in the program, then in what LD_PRELOAD lists, then in what ld.so.preload lists.
 * So LD_PRELOAD=libc.so.6, or libcuda.so.1, puts the real dlsym or the real driver in front of this
 * library, and with it any library that has one of our names. Whoever comes second here starts the
 * program again, before its first line, with this library in front, and where that cannot be done the
 * program does not run: it would have no limits. That is all that runs at load; it asks four questions
 * of the dynamic linker. Who comes by a guard (guard/) and not by a preload, in a container or with another
 * dynamic linker, comes later, and is left alone: then the guard keeps the limits. */
#include "api/symbols.h"
#include "base/libc.h"
#include "base/sys.h"
#include "route/loaded.h"
#include "route/lookup.h"
#include "route/route.h"
#include "tuning.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define PRELOAD "LD_PRELOAD="
#define PRELOAD_FILE "/etc/ld.so.preload"
#define OWN_NAME "/libslurm-vgpu.so"

/* A name of the program's own stays in front of everything. For one that is not a PIE it can also be
 * its jump to ours. */
static bool is_programs_own(const struct vgpu_libc *libc, const void *address)
{
	Dl_info found, program;

	return libc->dladdr(address, &found) != 0 &&
	       libc->dladdr((void *)getauxval(AT_ENTRY), &program) != 0 &&
	       found.dli_fbase == program.dli_fbase;
}

static bool is_found(const struct vgpu_libc *libc, const char *name, const void *ours)
{
	const void *first = libc->dlsym(RTLD_DEFAULT, name);

	return first == ours || is_programs_own(libc, first);
}

/* One of each library: whoever brings it along brings all of it. */
static bool comes_first(const struct vgpu_libc *libc)
{
	static const enum vgpu_symbol asked[] = {VGPU_SYMBOL_cuInit, VGPU_SYMBOL_cuMemAlloc_v2,
						 VGPU_SYMBOL_nvmlDeviceGetMemoryInfo};

	if (!is_found(libc, "dlsym", (void *)vgpu_dlsym))
		return false;
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		if (!is_found(libc, vgpu_row[asked[i]].symbol, vgpu_row[asked[i]].wrapper))
			return false;
	}
	return true;
}

static void *pages(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static bool is_preload(const char *entry)
{
	return strncmp(entry, PRELOAD, sizeof(PRELOAD) - 1) == 0;
}

static bool begins_with(const char *list, const char *own)
{
	size_t length = strlen(own);

	return strncmp(list, own, length) == 0 &&
	       (list[length] == '\0' || strchr(": ", list[length]) != NULL);
}

/* Writes the entry with own in front of the others, and returns what is behind it. */
static char *with_own(char *to, const char *own, const char *others)
{
	to = stpcpy(stpcpy(to, PRELOAD), own);
	if (*others != '\0')
		to = stpcpy(stpcpy(to, ":"), others);
	return to + 1;
}

/* The environment with this library first in every LD_PRELOAD: of several, the dynamic linker takes the last,
 * and the program the first. NULL when it is there already: starting the program again would change
 * nothing. */
static char **environment(char **envp, const char *own)
{
	size_t count = 0, entries = 0, bytes = sizeof(PRELOAD) + strlen(own);
	bool changed = false;
	char **made;
	char *text;

	for (; envp[count] != NULL; count++) {
		if (!is_preload(envp[count]))
			continue;
		entries++;
		bytes += strlen(envp[count]) + 1 + strlen(own) + 1;
		changed = changed || !begins_with(envp[count] + sizeof(PRELOAD) - 1, own);
	}
	made = changed || entries == 0 ? pages((count + 2) * sizeof(*made) + bytes) : NULL;
	if (made == NULL)
		return NULL;
	text = (char *)(made + count + 2);
	for (size_t i = 0; i < count; i++) {
		made[i] = envp[i];
		if (!is_preload(envp[i]) || begins_with(envp[i] + sizeof(PRELOAD) - 1, own))
			continue;
		made[i] = text;
		text = with_own(text, own, envp[i] + sizeof(PRELOAD) - 1);
	}
	if (entries == 0) {
		made[count] = text;
		with_own(text, own, "");
	}
	return made;
}

/* All of /proc/self/cmdline, whose length nobody tells. */
static char *read_cmdline(size_t *size)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	size_t room = VGPU_CMDLINE_FIRST_BYTES;
	char *text = pages(room);
	ssize_t n = -1;

	*size = 0;
	while (fd >= 0 && text != NULL && (n = read(fd, text + *size, room - *size)) > 0) {
		*size += (size_t)n;
		if (*size < room)
			continue;
		text = room < VGPU_CMDLINE_MOST_BYTES ? mremap(text, room, 2 * room, MREMAP_MAYMOVE) : NULL;
		text = text == MAP_FAILED ? NULL : text;
		room *= 2;
	}
	if (fd >= 0)
		close(fd);
	return n == 0 && *size != 0 && text[*size - 1] == '\0' ? text : NULL;
}

/* The command line as the kernel has it. The dynamic linker, started as a program, hands on only
 * the part behind its own options. */
static char **kernels_arguments(void)
{
	size_t size, count = 0;
	char *text = read_cmdline(&size);
	char **argv = NULL;

	for (size_t at = 0; text != NULL && at < size; at += strlen(text + at) + 1)
		count++;
	if (count != 0)
		argv = pages((count + 1) * sizeof(*argv));
	count = 0;
	for (size_t at = 0; argv != NULL && at < size; at += strlen(text + at) + 1)
		argv[count++] = text + at;
	return argv;
}

/* By its own path where that still is the same file: a program's name in ps comes from it. */
static void start_again(char **argv, char **envp)
{
	char path[PATH_MAX];
	struct stat here, there;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n > 0) {
		path[n] = '\0';
		if (vgpu_stat(path, &there) == 0 && vgpu_stat("/proc/self/exe", &here) == 0 &&
		    here.st_dev == there.st_dev && here.st_ino == there.st_ino)
			execve(path, argv, envp);
	}
	execve("/proc/self/exe", argv, envp);
}

static void end(const char *why)
{
	char line[256];
	int length = snprintf(line, sizeof(line),
			      "vgpu: not started: something comes before the library that keeps the limits, "
			      "and it cannot be put "
			      "in front: %s\n",
			      why);

	if (write(STDERR_FILENO, line, (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1) >=
	    0)
		errno = 0;
	_exit(127);
}

/* Whether the program has not begun: it cannot be begun again in its middle. */
static bool is_start(char **argv, const void *frame)
{
	return (uintptr_t)frame < (uintptr_t)argv &&
	       (uintptr_t)argv - (uintptr_t)frame < VGPU_START_STACK_BYTES;
}

/* Whether it came by a guard and nothing says that it was to come before. */
static bool is_behind_a_guard(char **envp)
{
	int fd = open(PRELOAD_FILE, O_RDONLY | O_CLOEXEC);
	char *text = fd < 0 ? NULL : pages(VGPU_PRELOAD_FILE_BYTES);
	bool named = text != NULL && read(fd, text, VGPU_PRELOAD_FILE_BYTES - 1) > 0 &&
		     strstr(text, OWN_NAME) != NULL;

	if (text != NULL)
		munmap(text, VGPU_PRELOAD_FILE_BYTES);
	if (fd >= 0)
		close(fd);
	for (; !named && *envp != NULL; envp++)
		named = is_preload(*envp);
	return !named && vgpu_real_is_guarded();
}

__attribute__((constructor)) static void stay_first(int argc, char **argv, char **envp)
{
	const struct vgpu_libc *libc = vgpu_libc();
	char own[PATH_MAX];

	(void)argc;
	if (libc == NULL || comes_first(libc) || getauxval(AT_SECURE) ||
	    !is_start(argv, __builtin_frame_address(0)) || is_behind_a_guard(envp))
		return;
	/* As the kernel calls it: for the dynamic linker it may be a link of the user's, or a path from some
	 * folder. */
	if (!vgpu_loaded_path((void *)stay_first, own))
		end("where it lies cannot be seen");
	envp = environment(envp, own);
	if (envp == NULL)
		end("it is first in LD_PRELOAD already");
	if (getauxval(AT_BASE) == 0)
		argv = kernels_arguments();
	if (argv == NULL)
		end("its arguments cannot be read");
	start_again(argv, envp);
	end(strerror(errno));
}
