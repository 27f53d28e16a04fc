/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver's names, each a jump to what guard_find has found for it. NAMES is the file of all
 * "name SYMBOL" lines; the first call of each goes by `find_first`, which keeps every register that may
 * hold an argument. */

#if defined(__x86_64__)

	.text
	.set index, 0
.macro name symbol
	.globl	\symbol
	.type	\symbol, @function
	.p2align 4
\symbol:
	.cfi_startproc
	endbr64
	movq	guard_address+8*index(%rip), %r11
	testq	%r11, %r11
	jz	1f
	jmp	*%r11
1:	movl	$index, %eax
	jmp	find_first
	.cfi_endproc
	.size	\symbol, . - \symbol
	.set index, index+1
.endm
#include NAMES

	.type	find_first, @function
find_first:
	.cfi_startproc
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	%r8
	pushq	%r9
	subq	$128, %rsp
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7
	movups	%xmm\n, 16*\n(%rsp)
	.endr
	movl	%eax, %edi
	call	guard_find
	movq	%rax, %r11
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7
	movups	16*\n(%rsp), %xmm\n
	.endr
	addq	$128, %rsp
	popq	%r9
	popq	%r8
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	jmp	*%r11
	.cfi_endproc
	.size	find_first, . - find_first

#elif defined(__aarch64__)

	.text
	.set index, 0
.macro name symbol
	.globl	\symbol
	.type	\symbol, %function
	.p2align 4
\symbol:
	.cfi_startproc
	hint	#34
	adrp	x16, guard_address+8*index
	ldr	x16, [x16, #:lo12:guard_address+8*index]
	cbz	x16, 1f
	br	x16
1:	mov	w17, #index
	b	find_first
	.cfi_endproc
	.size	\symbol, . - \symbol
	.set index, index+1
.endm
#include NAMES

	.type	find_first, %function
find_first:
	.cfi_startproc
	stp	x29, x30, [sp, #-224]!
	.cfi_def_cfa_offset 224
	.cfi_offset x29, -224
	.cfi_offset x30, -216
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	str	x8, [sp, #80]
	stp	q0, q1, [sp, #96]
	stp	q2, q3, [sp, #128]
	stp	q4, q5, [sp, #160]
	stp	q6, q7, [sp, #192]
	mov	w0, w17
	bl	guard_find
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldr	x8, [sp, #80]
	ldp	q0, q1, [sp, #96]
	ldp	q2, q3, [sp, #128]
	ldp	q4, q5, [sp, #160]
	ldp	q6, q7, [sp, #192]
	ldp	x29, x30, [sp], #224
	.cfi_restore x29
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	br	x16
	.cfi_endproc
	.size	find_first, . - find_first

#else
#error "the guard's entries are written for x86_64 and aarch64"
#endif

	.section .note.GNU-stack, "", %progbits
