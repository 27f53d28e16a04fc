/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * dlsym and dlvsym. Ordinary C functions would not do: the C library tells from the return address
 * which object asks, so names that are not ours must reach it by a jump, not by a call. */

#if defined(__x86_64__)

/* Both entries: three arguments are saved, the return address is given as the third, and the third
 * (dlvsym's version) as the fourth. */
.macro lookup entry, route
	.text
	.globl	\entry
	.hidden	\entry
	.type	\entry, @function
	.p2align 4
\entry:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	movq	%rdx, %rcx
	movq	24(%rsp), %rdx
	call	\route
	movq	%rdx, %r11
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	testq	%r11, %r11
	jz	1f
	jmp	*%r11
1:	ret
	.cfi_endproc
	.size	\entry, . - \entry
.endm
#define OLD_VERSION GLIBC_2.2.5

#elif defined(__aarch64__)

.macro lookup entry, route
	.text
	.globl	\entry
	.hidden	\entry
	.type	\entry, %function
	.p2align 4
\entry:
	.cfi_startproc
	hint	#34
	stp	x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset x29, -48
	.cfi_offset x30, -40
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	str	x2, [sp, #32]
	mov	x3, x2
	mov	x2, x30
	bl	\route
	mov	x16, x1
	cbz	x16, 1f
	ldp	x0, x1, [sp, #16]
	ldr	x2, [sp, #32]
	ldp	x29, x30, [sp], #48
	br	x16
1:	ldp	x29, x30, [sp], #48
	ret
	.cfi_endproc
	.size	\entry, . - \entry
.endm
#define OLD_VERSION GLIBC_2.17

#else
#error "dlsym's entry is written for x86_64 and aarch64"
#endif

	lookup	vgpu_dlsym, vgpu_route_dlsym
	lookup	vgpu_dlvsym, vgpu_route_dlvsym
	lookup	vgpu_dlsym_behind, vgpu_route_dlsym_behind
	lookup	vgpu_dlvsym_behind, vgpu_route_dlvsym_behind

/* Programs linked before and after glibc 2.34, which moved both into libc. */
#ifndef VGPU_NO_DLSYM
	.globl	vgpu_dlsym_old, vgpu_dlsym_new, vgpu_dlvsym_old, vgpu_dlvsym_new
	.set	vgpu_dlsym_old, vgpu_dlsym
	.set	vgpu_dlsym_new, vgpu_dlsym
	.set	vgpu_dlvsym_old, vgpu_dlvsym
	.set	vgpu_dlvsym_new, vgpu_dlvsym
#define SYMVER(from, to) .symver from, to
#define AT(name, version) name@version
#define DEFAULT(name, version) name@@version
	SYMVER(vgpu_dlsym_old, AT(dlsym, OLD_VERSION))
	SYMVER(vgpu_dlsym_new, DEFAULT(dlsym, GLIBC_2.34))
	SYMVER(vgpu_dlvsym_old, AT(dlvsym, OLD_VERSION))
	SYMVER(vgpu_dlvsym_new, DEFAULT(dlvsym, GLIBC_2.34))
#endif

	.section .note.GNU-stack, "", %progbits
