/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "userns.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The calls that lead into a user namespace, by their numbers in each way to call this kernel. */
struct abi {
	uint32_t arch, clone, unshare, setns, clone3;
};

static const struct abi abis[] = {
#if defined(__x86_64__)
	{AUDIT_ARCH_X86_64, 56, 272, 308, 435},
	{AUDIT_ARCH_I386, 120, 310, 346, 435},
#elif defined(__aarch64__)
	{AUDIT_ARCH_AARCH64, 220, 97, 268, 435},
	{AUDIT_ARCH_ARM, 120, 337, 375, 435},
#else
	{0},
#endif
};

#define ABI_COUNT (sizeof(abis) / sizeof(abis[0]))
#define BLOCK 16	    /* instructions for one of them */
#define X32_BIT 0x40000000u /* x32 is x86-64 with this bit in the number; elsewhere no number has it */

#define LOW_WORD(n) (offsetof(struct seccomp_data, args) + 8 * (n)) /* both processors are little-endian */
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(at))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))
/* From instruction `from` to instruction `yes` or `no`. */
#define TEST(how, value, from, yes, no) \
	BPF_JUMP(BPF_JMP | (how) | BPF_K, (value), (yes) - (from)-1, (no) - (from)-1)

enum { CALLS = 2, FLAGS = 8, SETNS = 10, REFUSE = 13, ALLOW = 14, UNKNOWN = 15 };

/* clone3 has its flags in memory, which a filter cannot read: programs fall back to clone from a kernel that
 * does not know it. setns with no kind given takes whatever kind the descriptor is of. */
static void put_abi(struct sock_filter *block, const struct abi *abi)
{
	const struct sock_filter code[BLOCK] = {
		LOAD(offsetof(struct seccomp_data, arch)),
		TEST(BPF_JEQ, abi->arch, 1, CALLS, BLOCK),
		[CALLS] = LOAD(offsetof(struct seccomp_data, nr)),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~X32_BIT),
		TEST(BPF_JEQ, abi->clone3, 4, UNKNOWN, 5),
		TEST(BPF_JEQ, abi->setns, 5, SETNS, 6),
		TEST(BPF_JEQ, abi->clone, 6, FLAGS, 7),
		TEST(BPF_JEQ, abi->unshare, 7, FLAGS, ALLOW),
		[FLAGS] = LOAD(LOW_WORD(0)),
		TEST(BPF_JSET, CLONE_NEWUSER, 9, REFUSE, ALLOW),
		[SETNS] = LOAD(LOW_WORD(1)),
		TEST(BPF_JEQ, 0, 11, REFUSE, 12),
		TEST(BPF_JSET, CLONE_NEWUSER, 12, REFUSE, ALLOW),
		[REFUSE] = RETURN(SECCOMP_RET_ERRNO | EPERM),
		[ALLOW] = RETURN(SECCOMP_RET_ALLOW),
		[UNKNOWN] = RETURN(SECCOMP_RET_ERRNO | ENOSYS),
	};
	memcpy(block, code, sizeof(code));
}

int vgpu_userns_deny(char why[VGPU_REASON_BYTES])
{
	struct sock_filter code[ABI_COUNT * BLOCK + 1];
	const struct sock_filter of_no_abi = RETURN(SECCOMP_RET_ERRNO | EPERM);
	const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	if (abis[0].arch == 0) {
		snprintf(why, VGPU_REASON_BYTES, "not on this kind of processor");
		return -1;
	}
	for (size_t i = 0; i < ABI_COUNT; i++)
		put_abi(code + i * BLOCK, &abis[i]);
	code[ABI_COUNT * BLOCK] = of_no_abi;
	/* Without no_new_privs, which root need not set: sudo and the like go on. */
	long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
	if (rc != 0) /* above 0 it is the thread that has another filter */
		snprintf(why, VGPU_REASON_BYTES, "set a seccomp filter: %s",
			 rc > 0 ? "one thread has another" : strerror(errno));
	return rc == 0 ? 0 : -1;
}
