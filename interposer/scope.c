/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Names are looked up in the program, then in what LD_PRELOAD lists, then in what ld.so.preload lists.
 * So LD_PRELOAD=libc.so.6, or libcuda.so.1, puts the real dlsym or the real driver in front of this
 * library, and with it any library that has one of our names. Whoever comes second here starts the
 * program again, before its first line, with this library in front. That is all that runs at load;
 * it asks four questions of the dynamic linker. */
#include "libc.h"
#include "route.h"
#include "symbols.h"
#include "sys.h"

#include <limits.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define MAX_CMDLINE_BYTES (1u << 20)
#define PRELOAD "LD_PRELOAD="

/* A name of the program's own stays in front of everything. For one that is not a PIE it can also be
 * its jump to ours. */
static bool is_programs_own(const struct vgpu_libc *libc, const void *address)
{
	Dl_info found, program;

	return libc->dladdr(address, &found) != 0 && libc->dladdr((void *)getauxval(AT_ENTRY), &program) != 0 &&
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

static char **preload_of(char **envp)
{
	while (*envp != NULL && strncmp(*envp, PRELOAD, sizeof(PRELOAD) - 1) != 0)
		envp++;
	return envp;
}

/* The environment with this library first in LD_PRELOAD. NULL when it is there already: starting
 * the program again would change nothing. */
static char **environment(char **envp, const char *own)
{
	char **was = preload_of(envp);
	const char *others = *was != NULL ? *was + sizeof(PRELOAD) - 1 : "";
	size_t length = strlen(own);
	size_t count = 0;
	char **made;
	char *value;

	if (strncmp(others, own, length) == 0 && (others[length] == '\0' || strchr(": ", others[length]) != NULL))
		return NULL;
	while (envp[count] != NULL)
		count++;
	made = pages((count + 2) * sizeof(*made) + sizeof(PRELOAD) + length + 1 + strlen(others) + 1);
	if (made == NULL)
		return NULL;
	memcpy(made, envp, count * sizeof(*made));
	value = (char *)(made + count + 2);
	made[*was != NULL ? (size_t)(was - envp) : count] = value;
	value = stpcpy(stpcpy(value, PRELOAD), own);
	if (*others != '\0')
		stpcpy(stpcpy(value, ":"), others);
	return made;
}

/* The command line as the kernel has it. The dynamic linker, started as a program, hands on only
 * the part behind its own options. */
static char **kernels_arguments(void)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	char *text = pages(MAX_CMDLINE_BYTES);
	size_t size = 0;
	ssize_t n = -1;
	size_t count = 0;
	char **argv;

	while (fd >= 0 && text != NULL && size < MAX_CMDLINE_BYTES) {
		n = read(fd, text + size, MAX_CMDLINE_BYTES - size);
		if (n <= 0)
			break;
		size += (size_t)n;
	}
	if (fd >= 0)
		close(fd);
	if (n != 0 || size == 0 || text[size - 1] != '\0')
		return NULL;
	argv = pages((size + 1) * sizeof(*argv));
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
		if (vgpu_stat(path, &there) == 0 && vgpu_stat("/proc/self/exe", &here) == 0 && here.st_dev == there.st_dev &&
		    here.st_ino == there.st_ino)
			execve(path, argv, envp);
	}
	execve("/proc/self/exe", argv, envp);
}

__attribute__((constructor)) static void stay_first(int argc, char **argv, char **envp)
{
	const struct vgpu_libc *libc = vgpu_libc();
	Dl_info own;

	(void)argc;
	if (libc == NULL || comes_first(libc) || getauxval(AT_SECURE) || libc->dladdr((void *)stay_first, &own) == 0 ||
	    own.dli_fname == NULL || own.dli_fname[0] != '/')
		return;
	envp = environment(envp, own.dli_fname);
	if (envp != NULL && getauxval(AT_BASE) == 0)
		argv = kernels_arguments();
	if (envp != NULL && argv != NULL)
		start_again(argv, envp);
}
