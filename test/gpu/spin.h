/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that keeps a GPU busy. Its first parameter is how many microseconds it is to take on the simulated
 * driver, its second how many loops it runs on a real one. Each step needs the one before it, so the number
 * of loops is the length, by the GPU's clock: unlike a kernel that waits for a time, it takes as long however
 * often it is interrupted. */
#ifndef VGPU_TEST_SPIN_H
#define VGPU_TEST_SPIN_H

#define SPIN_NAME "simgpu_busy_us"
#define SPIN_TEXT                                                       \
	".version 7.0\n.target sm_70\n.address_size 64\n"               \
	".visible .global .align 4 .u32 sink;\n"                        \
	".visible .entry simgpu_busy_us(.param .u32 us, .param .u32 loops)\n" \
	"{\n"                                                           \
	".reg .u32 %r<4>;\n.reg .pred %p<3>;\n"                         \
	"ld.param.u32 %r1, [loops];\n"                                  \
	"mov.u32 %r2, %tid.x;\n"                                        \
	"LOOP:\n"                                                       \
	"mad.lo.u32 %r2, %r2, 1664525, 1013904223;\n"                   \
	"sub.u32 %r1, %r1, 1;\n"                                        \
	"setp.ne.u32 %p1, %r1, 0;\n"                                    \
	"@%p1 bra LOOP;\n"                                              \
	"setp.ne.u32 %p2, %r2, 12345;\n"                                \
	"@%p2 bra END;\n"                                               \
	"st.global.u32 [sink], %r2;\n"                                  \
	"END:\n"                                                        \
	"ret;\n"                                                        \
	"}\n"

#endif
