/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library of many names, with either table of them; see base/image.c. */
#define NAME(n) int named_##n(void); int named_##n(void) { return n; }
#define TEN(n) NAME(n##0) NAME(n##1) NAME(n##2) NAME(n##3) NAME(n##4) NAME(n##5) NAME(n##6) NAME(n##7) NAME(n##8) NAME(n##9)
TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9)

/* It is in the table of symbols, and not defined there. */
extern int named_elsewhere(void) __attribute__((weak));
int (*named_pointer(void))(void);
int (*named_pointer(void))(void) { return named_elsewhere; }
