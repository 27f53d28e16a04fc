/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whose files are believed to be root's, in the kernel's own user namespaces. */
#include "harness.h"

#include "process/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Some user without a name. */
#define USER 12345
#define OTHER 12346
#define ROOTS_FILE "/proc/sys/kernel/ostype"

static char own_file[300];

static bool is_roots(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool roots;

	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	roots = fd >= 0 && vgpu_trust_roots(fd, &st);
	close(fd);
	return roots;
}

static bool is_users(const char *path, uint32_t uid, bool mine)
{
	struct stat st;

	CHECK(stat(path, &st) == 0);
	return vgpu_trust_users(&st, uid, mine);
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* An ordinary user with a file that only he may write. */
static void become_a_user(void)
{
	const char *tmp = getenv("TMPDIR");
	int fd;

	if (geteuid() == 0)
		CHECK(setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0);
	prctl(PR_SET_DUMPABLE, 1); /* or /proc/self is root's */
	snprintf(own_file, sizeof(own_file), "%s/vgpu-trust-XXXXXX", tmp != NULL ? tmp : "/tmp");
	fd = mkstemp(own_file);
	CHECK(fd >= 0 && fchmod(fd, 0444) == 0);
	close(fd);
}

/* Groups are as users: without one of its own nobody makes files, or namespaces. */
static void enter_a_namespace(const char *map)
{
	char group[40];

	snprintf(group, sizeof(group), "0 %u 1", (unsigned)getegid());
	CHECK_IS(unshare(CLONE_NEWUSER | CLONE_NEWNS), 0);
	if (map == NULL)
		return;
	write_text("/proc/self/uid_map", map);
	write_text("/proc/self/setgroups", "deny");
	write_text("/proc/self/gid_map", group);
}

static const char *to(unsigned inside)
{
	static char map[40];

	snprintf(map, sizeof(map), "%u %u 1", inside, (unsigned)geteuid());
	return map;
}

static void outside_root_is_root(void)
{
	become_a_user();
	CHECK(vgpu_trust_same_ids());
	CHECK(is_roots(ROOTS_FILE) && is_roots("/etc"));
	CHECK(!is_roots(own_file) && !is_roots("/proc/sys/kernel/../../self/stat"));
	CHECK(!is_roots("/tmp"));
	CHECK(is_users(own_file, geteuid(), true) && !is_users(own_file, OTHER, true));
	CHECK(is_users(ROOTS_FILE, OTHER, false));
	unlink(own_file);
}

/* Root's files are still known, and what is the user's own is not taken for them, whatever it looks like. */
static void check_a_namespace(const char *map, uint32_t uid)
{
	enter_a_namespace(map);
	CHECK(!vgpu_trust_same_ids());
	CHECK(is_roots(ROOTS_FILE) && is_roots("/etc"));
	CHECK(!is_roots(own_file) && !is_roots("/proc/self/stat") && !is_roots("/tmp"));
	CHECK(is_users(own_file, uid, true));
	CHECK(is_users(ROOTS_FILE, OTHER, false));
	unlink(own_file);
}

static void where_the_user_is_root_he_is_not_believed(void)
{
	become_a_user();
	check_a_namespace(to(0), USER);
}

static void where_he_is_himself_he_is_not_believed(void)
{
	uint32_t uid;

	become_a_user();
	uid = geteuid();
	check_a_namespace(to(uid), uid);
}

static void where_he_looks_like_root_outside_he_is_not_believed(void)
{
	become_a_user();
	check_a_namespace(to(65534), USER);
}

static void where_he_is_nobody_he_is_not_believed(void)
{
	become_a_user();
	check_a_namespace(NULL, USER);
}

static void in_a_namespace_within_he_is_not_believed(void)
{
	become_a_user();
	enter_a_namespace(to(0));
	check_a_namespace("0 0 1", USER);
}

static void root_is_root_in_one_too(void)
{
	if (geteuid() != 0) {
		printf("SKIP root_is_root_in_one_too: only root is root\n");
		return;
	}
	snprintf(own_file, sizeof(own_file), "%s", "/dev/null");
	enter_a_namespace("0 0 1");
	CHECK(!vgpu_trust_same_ids() && is_roots("/etc") && !is_roots(own_file));
}

static void another_users_claims_are_not_his(void)
{
	become_a_user();
	enter_a_namespace(to(0));
	CHECK(!is_users(own_file, OTHER, false));
	unlink(own_file);
}

/* A tmpfs of his in place of /proc says whatever he likes. */
static void a_proc_of_his_own_says_nothing(void)
{
	become_a_user();
	enter_a_namespace(to(0));
	CHECK_IS(mount("none", "/proc", "tmpfs", 0, NULL), 0);
	CHECK(!vgpu_trust_same_ids() && !is_roots("/etc") && !is_roots(own_file));
	unlink(own_file);
	CHECK(mkdir("/proc/sys", 0755) == 0 && mkdir("/proc/sys/kernel", 0755) == 0);
	CHECK(!is_roots("/proc/sys/kernel") && !is_roots("/etc"));
}

static void a_map_of_his_own_says_nothing(void)
{
	become_a_user();
	enter_a_namespace(to(0));
	CHECK_IS(mount("none", "/proc", "tmpfs", 0, NULL), 0);
	CHECK_IS(mkdir("/proc/self", 0755), 0);
	CHECK_IS(close(open("/proc/self/uid_map", O_WRONLY | O_CREAT | O_CLOEXEC, 0644)), 0);
	write_text("/proc/self/uid_map", "         0          0 4294967295\n");
	CHECK(!vgpu_trust_same_ids() && !is_roots(own_file) && !is_users(own_file, OTHER, false));
	unlink(own_file);
}

#define ARGUMENT(n) offsetof(struct seccomp_data, args[n])

/* Whoever asks for a file without a trace is refused, whosever it is. */
static void answer_in_the_kernels_place(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(2)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_NOATIME, 3, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(2)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_NOATIME, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	CHECK_IS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_IS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void a_filter_does_not_answer_for_the_kernel(void)
{
	become_a_user();
	enter_a_namespace(NULL);
	answer_in_the_kernels_place();
	CHECK(!is_roots(own_file));
	unlink(own_file);
}

static bool has_namespaces(void)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		become_a_user();
		unlink(own_file);
		_exit(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 ? 0 : 1);
	}
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
	CASE(outside_root_is_root);
	if (!has_namespaces()) {
		printf("SKIP all others: this user may make no user namespace\n");
		return summary();
	}
	CASE(where_the_user_is_root_he_is_not_believed);
	CASE(where_he_is_himself_he_is_not_believed);
	CASE(where_he_looks_like_root_outside_he_is_not_believed);
	CASE(where_he_is_nobody_he_is_not_believed);
	CASE(in_a_namespace_within_he_is_not_believed);
	CASE(root_is_root_in_one_too);
	CASE(another_users_claims_are_not_his);
	CASE(a_proc_of_his_own_says_nothing);
	CASE(a_map_of_his_own_says_nothing);
	CASE(a_filter_does_not_answer_for_the_kernel);
	return summary();
}
