/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Nobody becomes the driver by a name, and no driver goes unseen because it came by another one. Linked with
 * neither library; each case in a process of its own. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

typedef void *pose_fn(void *handle, const char *name);
typedef void *pose_versioned_fn(void *handle, const char *name, const char *version);
typedef int sim_dlsym_fn(void *handle, const char *name, void **symbol);

static char folder[200];
static char own[4096]; /* this program */
static char helpers[4096]; /* the folder of the libraries that it loads */
static int passed, failed, failures;

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			failures++;                                                     \
		}                                                                       \
	} while (0)

static const char *in(const char *where, const char *name)
{
	static char path[4][8192];
	static unsigned int turn;
	char *made = path[turn++ % 4];

	snprintf(made, sizeof(path[0]), "%s/%s", where, name);
	return made;
}

static const char *sim(const char *name)
{
	return in(getenv("VGPU_TEST_SIM"), name);
}

static int is_in(void *address, const char *library)
{
	Dl_info info;

	return address != NULL && dladdr(address, &info) != 0 && strstr(info.dli_fname, library) != NULL;
}

static int is_wrapper(void *address)
{
	return is_in(address, "libslurm-vgpu.so");
}

static void copy(const char *from, int to)
{
	int fd = open(from, O_RDONLY | O_CLOEXEC);
	struct stat st;

	CHECK(fd >= 0 && to >= 0 && fstat(fd, &st) == 0 &&
	      sendfile(to, fd, NULL, (size_t)st.st_size) == st.st_size);
	close(fd);
}

/* In the folder of this test, with this owner. */
static const char *copied(const char *from, const char *name, uid_t owner)
{
	const char *path = in(folder, name);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

	copy(from, fd);
	CHECK(geteuid() != 0 || fchown(fd, owner, owner) == 0);
	close(fd);
	return path;
}

static void check_poses_in_vain(const char *path)
{
	void *driver = dlopen(sim("libcuda.so.1"), RTLD_NOW);
	void *library = dlopen(path, RTLD_NOW);
	pose_fn *pose;
	pose_versioned_fn *versioned;

	CHECK(driver != NULL);
	if (library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		failures++;
		return;
	}
	pose = (pose_fn *)dlsym(library, "pose");
	versioned = (pose_versioned_fn *)dlsym(library, "pose_versioned");
	CHECK(is_wrapper(pose(driver, "cuMemAlloc_v2")));
	CHECK(is_wrapper(pose(driver, "cuGetProcAddress_v2")));
	CHECK(!is_in(versioned(driver, "cuMemAlloc_v2", "NO_SUCH_VERSION"), "libcuda.so.1"));
}

static void a_library_of_the_drivers_name_is_not_the_driver(void)
{
	static const char *const names[] = {"libnvidia-x.so",	 "libcuda.so.1",
					    "libcuda.so.580.1",	 "libcudadebugger.so.1",
					    "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check_poses_in_vain(copied(in(helpers, "poser.so"), names[i], NOBODY));
	/* Not even root's own. */
	check_poses_in_vain(copied(in(helpers, "poser.so"), "libnvidia-root.so", 0));
}

static void a_link_of_the_drivers_name_is_not_the_driver(void)
{
	CHECK(symlink(in(helpers, "poser.so"), in(folder, "libnvidia-link.so")) == 0);
	check_poses_in_vain(in(folder, "libnvidia-link.so"));
}

static void a_file_without_a_name_is_not_the_driver(void)
{
	char path[64];
	int fd = memfd_create("libcuda.so.1", 0);

	copy(in(helpers, "poser.so"), fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	check_poses_in_vain(path);
	check_poses_in_vain(copied(in(helpers, "poser.so"), "libcuda.so.gone", NOBODY));
}

static void a_deleted_library_is_not_the_driver(void)
{
	const char *path = copied(sim("libcuda.so.1"), "libcuda.so.2", NOBODY);
	void *library = dlopen(path, RTLD_NOW);
	sim_dlsym_fn *ask = (sim_dlsym_fn *)dlsym(library, "cuSimDlsym");
	void *driver = dlopen(sim("libcuda.so.1"), RTLD_NOW);
	void *found = NULL;

	CHECK(unlink(path) == 0);
	CHECK(library != NULL && driver != NULL && ask(driver, "cuMemAlloc_v2", &found) == 0 &&
	      is_wrapper(found));
	/* Nor where root's driver lies there now. */
	CHECK(symlink(sim("libcuda.so.1"), path) == 0);
	CHECK(ask(driver, "cuMemAlloc_v2", &found) == 0 && is_wrapper(found));
}

static void a_copy_of_the_driver_is_not_the_driver(void)
{
	void *driver, *found = NULL;
	sim_dlsym_fn *ask;

	if (geteuid() != 0) {
		printf("SKIP a_copy_of_the_driver_is_not_the_driver: only root can give a file away\n");
		return;
	}
	driver = dlopen(copied(sim("libcuda.so.1"), "libcuda.so.copy", NOBODY), RTLD_NOW);
	CHECK(driver != NULL);
	ask = (sim_dlsym_fn *)dlsym(driver, "cuSimDlsym");
	CHECK(ask(driver, "cuMemAlloc_v2", &found) == 0 && is_wrapper(found));
	/* And who may write the file is as good as its owner. */
	driver = dlopen(copied(sim("libcuda.so.1"), "libcuda.so.open", 0), RTLD_NOW);
	CHECK(chmod(in(folder, "libcuda.so.open"), 0777) == 0);
	ask = (sim_dlsym_fn *)dlsym(driver, "cuSimDlsym");
	CHECK(ask(driver, "cuMemAlloc_v2", &found) == 0 && is_wrapper(found));
}

static void roots_driver_is_the_driver_by_any_name(void)
{
	void *driver = dlopen(copied(sim("libcuda.so.1"), "anything.so", 0), RTLD_NOW);
	sim_dlsym_fn *ask = (sim_dlsym_fn *)dlsym(driver, "cuSimDlsym");
	void *found = NULL;

	for (int i = 0; i < 3; i++)
		CHECK(ask(driver, "cuMemAlloc_v2", &found) == 0 && is_in(found, "anything.so"));
	CHECK(is_wrapper(dlsym(driver, "cuMemAlloc_v2")));
}

/* A library without anything in it that has the driver's name. */
static void a_driver_behind_an_empty_one_is_wrapped(void)
{
	void *empty = dlopen(in(helpers, "empty.so"), RTLD_NOW | RTLD_GLOBAL);
	void *driver = dlopen(copied(sim("libcuda.so.1"), "other.so", NOBODY), RTLD_NOW);

	CHECK(empty != NULL && dlopen("libcuda.so.1", RTLD_NOW) == empty);
	CHECK(driver != NULL && driver != empty && is_wrapper(dlsym(driver, "cuMemAlloc_v2")));
	CHECK(is_wrapper(dlsym(driver, "cuGetProcAddress_v2")));
}

static void a_driver_behind_an_empty_one_is_wrapped_by_rtld_next(void)
{
	CHECK(dlopen(in(helpers, "empty.so"), RTLD_NOW | RTLD_GLOBAL) != NULL);
	CHECK(dlopen(copied(sim("libcuda.so.1"), "other.so", NOBODY), RTLD_NOW | RTLD_GLOBAL) != NULL);
	CHECK(is_wrapper(dlsym(RTLD_NEXT, "cuMemAlloc_v2")));
	CHECK(is_wrapper(dlsym(RTLD_DEFAULT, "cuMemFree_v2")));
}

/* The lookup itself, asked for by name. */
static void a_lookup_that_was_looked_up_is_ours(void)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW), *driver = dlopen(sim("libcuda.so.1"), RTLD_NOW);
	void *elsewhere = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
	void *handles[] = {libc, elsewhere, RTLD_NEXT, RTLD_DEFAULT,
			   dlopen(in(helpers, "poser.so"), RTLD_NOW)};

	for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
		pose_fn *lookup = (pose_fn *)dlsym(handles[i], "dlsym");
		pose_versioned_fn *versioned = (pose_versioned_fn *)dlsym(handles[i], "dlvsym");

		CHECK(lookup != NULL && is_wrapper(lookup(driver, "cuMemAlloc_v2")));
		CHECK(versioned != NULL && is_wrapper((void *)versioned));
		CHECK(lookup != NULL && lookup(libc, "puts") == (void *)dlsym(libc, "puts"));
	}
	CHECK(dlvsym(libc, "dlsym", "GLIBC_9.9") == NULL);
	/* A library that has one of its own keeps it. */
	CHECK(!is_wrapper(dlsym(dlopen(in(helpers, "poser.so"), RTLD_NOW), "pose")));
}

/* A namespace has no preloads: its own lookups are not seen, but those into it are. */
static void a_driver_in_another_namespace_is_wrapped(void)
{
	int (*init)(unsigned int);
	void *driver = dlmopen(LM_ID_NEWLM, sim("libcuda.so.1"), RTLD_NOW);
	void *copied_one = dlmopen(LM_ID_NEWLM, copied(sim("libcuda.so.1"), "other.so", NOBODY), RTLD_NOW);

	CHECK(driver != NULL && copied_one != NULL);
	CHECK(is_wrapper(dlsym(driver, "cuMemAlloc_v2")));
	CHECK(is_wrapper(dlsym(copied_one, "cuMemAlloc_v2")));
	CHECK(is_wrapper(dlsym(driver, "cuGetProcAddress_v2")));
	/* There is no driver here whose function it could call. */
	init = (int (*)(unsigned int))dlsym(driver, "cuInit");
	CHECK(is_wrapper((void *)init) && init(0) == 500);
	driver = dlopen(sim("libcuda.so.1"), RTLD_NOW);
	CHECK(is_wrapper(dlsym(copied_one, "cuMemAlloc_v2")) && is_wrapper(dlsym(driver, "cuMemAlloc_v2")));
	/* Outside of a step it is not permitted, whichever is asked. */
	CHECK(init(0) == 800);
}

static void other_libraries_have_their_namespaces(void)
{
	void *library = dlmopen(LM_ID_NEWLM, in(helpers, "poser.so"), RTLD_NOW);
	void *math = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW);
	pose_fn *pose = (pose_fn *)dlsym(library, "pose");
	double (*root)(double) = (double (*)(double))dlsym(math, "sqrt");

	CHECK(library != NULL && math != NULL && pose != NULL && root != NULL && root(9) == 3);
	CHECK(pose(math, "sqrt") == (void *)root);
}

/* The rest of the case runs in this program by other names. */
static int run(const char *file, const char *argv0)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execl(file, argv0, "look", (char *)NULL);
		_exit(97);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int look(void)
{
	void *driver = dlopen(sim("libcuda.so.1"), RTLD_NOW);

	return driver != NULL && is_wrapper(dlsym(driver, "cuMemAlloc_v2")) &&
			       is_wrapper(dlsym(driver, "cuInit"))
		       ? 0
		       : 1;
}

static void a_program_is_not_the_driver(void)
{
	static const char *const names[] = {"libnvidia-x", "libcuda.so.1", "/usr/lib/libcuda.so.1",
					    "libcudadebugger.so"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		CHECK(run(own, names[i]) == 0);
	CHECK(run(copied(own, "libcuda.so.prog", NOBODY), in(folder, "libcuda.so.prog")) == 0);
	CHECK(run(copied(own, "libcuda.so.roots", 0), "libcuda.so.1") == 0);
}

static void run_case(const char *name, void (*function)(void))
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		char command[300];

		snprintf(folder, sizeof(folder), "%s/posing-XXXXXX",
			 getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
		CHECK(mkdtemp(folder) != NULL && chmod(folder, 0755) == 0);
		function();
		snprintf(command, sizeof(command), "env -u LD_PRELOAD rm -rf '%s'", folder);
		CHECK(system(command) == 0);
		fflush(NULL);
		_exit(failures != 0);
	}
	waitpid(pid, &status, 0);
	printf("%s %s\n", status == 0 ? "PASS" : "FAIL", name);
	passed += status == 0;
	failed += status != 0;
}
#define CASE(function) run_case(#function, function)

int main(int argc, char **argv)
{
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

	(void)argv;
	if (argc > 1)
		return look();
	CHECK(n > 0);
	snprintf(helpers, sizeof(helpers), "%s/../test-interposer/helpers", getenv("VGPU_TEST_SIM"));
	CASE(a_program_is_not_the_driver);
	CASE(a_library_of_the_drivers_name_is_not_the_driver);
	CASE(a_link_of_the_drivers_name_is_not_the_driver);
	CASE(a_file_without_a_name_is_not_the_driver);
	CASE(a_deleted_library_is_not_the_driver);
	CASE(a_copy_of_the_driver_is_not_the_driver);
	CASE(roots_driver_is_the_driver_by_any_name);
	CASE(a_driver_behind_an_empty_one_is_wrapped);
	CASE(a_driver_behind_an_empty_one_is_wrapped_by_rtld_next);
	CASE(a_lookup_that_was_looked_up_is_ours);
	CASE(a_driver_in_another_namespace_is_wrapped);
	CASE(other_libraries_have_their_namespaces);
	printf("%d passed, %d failed\n", passed, failed);
	return failed != 0;
}
