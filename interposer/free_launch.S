/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The entries of launches and fills: to the driver's function by a jump while the process is free of the gate (gate.h),
 * else to the body of the row's kind. A C function would save eleven arguments to read the clock, and take three lines
 * of the cache instead of one. */
#include "ticks.h"

#if defined(__x86_64__)

.macro free_launch symbol
	.text
	.globl	vgpu_wrap_\symbol, \symbol
	.hidden	vgpu_wrap_\symbol
	.type	vgpu_wrap_\symbol, @function
	.type	\symbol, @function
	.p2align 6
vgpu_wrap_\symbol:
\symbol:
	.cfi_startproc
	endbr64
	movq	vgpu_real(%rip), %r11
	testq	%r11, %r11
	jz	1f
	movq	%rdx, %r10
	rdtsc
	shlq	$32, %rdx
	orq	%rdx, %rax
	movq	%r10, %rdx
	subq	%r11, %rax
	cmpq	$VGPU_FREE_TICKS, %rax
	jae	1f
	movq	vgpu_real+address(%rip), %rax
	testq	%rax, %rax
	jz	1f
	jmp	*%rax
1:	jmp	vgpu_behind_\symbol
	.cfi_endproc
	.size	vgpu_wrap_\symbol, . - vgpu_wrap_\symbol
	.size	\symbol, . - \symbol
.endm

#elif defined(__aarch64__)

.macro free_launch symbol
	.text
	.globl	vgpu_wrap_\symbol, \symbol
	.hidden	vgpu_wrap_\symbol
	.type	vgpu_wrap_\symbol, %function
	.type	\symbol, %function
	.p2align 6
vgpu_wrap_\symbol:
\symbol:
	.cfi_startproc
	hint	#34
	adrp	x16, vgpu_real
	add	x16, x16, :lo12:vgpu_real
	ldr	x17, [x16, #address]
	ldr	x16, [x16]
	cbz	x17, 1f
	cbz	x16, 1f
	mrs	x9, cntvct_el0
	mrs	x10, cntfrq_el0
	sub	x9, x9, x16
	cmp	x9, x10, lsr #VGPU_FREE_SHIFT
	b.hs	1f
	br	x17
1:	b	vgpu_behind_\symbol
	.cfi_endproc
	.size	vgpu_wrap_\symbol, . - vgpu_wrap_\symbol
	.size	\symbol, . - \symbol
.endm

#endif

.macro row kind, symbol
	.ifc	\kind, LAUNCH
	free_launch \symbol
	.endif
	.ifc	\kind, LAUNCH_CONFIG
	free_launch \symbol
	.endif
	.ifc	\kind, GRAPH_LAUNCH
	free_launch \symbol
	.endif
	.ifc	\kind, FILL
	free_launch \symbol
	.endif
	.set	address, address + 8
.endm

/* The table's order is that of the addresses, which begin behind free_ticks. */
	.set	address, 8
#define VGPU_CUDA(kind, symbol, ...) row kind, symbol
#include "api/cuda.def"

	.section .note.GNU-stack, "", %progbits
