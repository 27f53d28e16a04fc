/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The entries of launches and fills: to the driver's function by a jump while the thread is free of the gate for some
 * more of them (gate/gate.h), else to what looks at the thread's lease (streams/lease.h) if it has one, else to the rest. A C function
 * would save and restore what it does not touch, and take three lines of the cache instead of one. */

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
	movq	vgpu_lease@gottpoff(%rip), %rax
	movq	vgpu_real+address(%rip), %r11
	cmpl	$0, %fs:(%rax)
	jle	1f
	testq	%r11, %r11
	jz	1f
	subl	$1, %fs:(%rax)
	jmp	*%r11
1:	cmpl	$0, %fs:4(%rax)
	jne	vgpu_lease_\symbol
	jmp	vgpu_launch_\symbol
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
	adrp	x16, vgpu_real+address
	ldr	x16, [x16, #:lo12:vgpu_real+address]
	adrp	x9, :gottprel:vgpu_lease
	ldr	x9, [x9, #:gottprel_lo12:vgpu_lease]
	mrs	x10, tpidr_el0
	add	x9, x9, x10
	ldr	w11, [x9]
	cmp	w11, #0
	b.le	1f
	cbz	x16, 1f
	sub	w11, w11, #1
	str	w11, [x9]
	br	x16
1:	ldr	w11, [x9, #4]
	cbz	w11, 2f
	b	vgpu_lease_\symbol
2:	b	vgpu_launch_\symbol
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
	.ifc	\kind, FILL
	free_launch \symbol
	.endif
	.set	address, address + 8
.endm

/* The table's order is that of vgpu_real. */
	.set	address, 0
#define VGPU_CUDA(kind, symbol, ...) row kind, symbol
#include "api/cuda.def"

	.section .note.GNU-stack, "", %progbits
