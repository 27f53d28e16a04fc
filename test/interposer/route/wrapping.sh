#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Programs and preloads that have functions of the C library wrapped, and look up the real ones by dlsym only when they are
# called, are the same with and without the library: the sanitizers, and wrappers as fuzzers and servers have them.
#   wrapping.sh LIBRARY
# VGPU_TEST_SIM is the folder of the simulated libraries.
set -u
library=$1
sim=$VGPU_TEST_SIM
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

verdict() {
	if [ "$2" = "$3" ]; then
		passed=$((passed + 1))
		echo "PASS $1"
	else
		failed=$((failed + 1))
		echo "FAIL $1: got '$3', want '$2'"
	fi
}

cat >"$work/program.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	char *text = malloc(8);
	int (*init)(unsigned int) = NULL;
	void *cuda = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;

	if (cuda != NULL)
		init = (int (*)(unsigned int))dlsym(cuda, "cuInit");
	snprintf(text, 8, "%d", init != NULL ? init(0) : -1);
	puts(text);
	free(text);
	return 0;
}
C
# Outside of a step the library permits nothing: 800.
sanitized() {
	name=$1
	shift
	if ! "$cc" "$@" "$work/program.c" -o "$work/program" -ldl 2>/dev/null; then
		echo "SKIP $name: $cc has no $*"
		return
	fi
	verdict "${name}_without_cuda" -1 "$(LD_PRELOAD=$library ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LSAN_OPTIONS=detect_leaks=0 "$work/program" 2>&1 | tail -n 1)"
	verdict "${name}_with_cuda" 800 "$(LD_PRELOAD=$library ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LSAN_OPTIONS=detect_leaks=0 "$work/program" "$sim/libcuda.so.1" 2>&1 | tail -n 1)"
}
sanitized address_shared -fsanitize=address
sanitized address_static -fsanitize=address -static-libasan
sanitized thread_shared -fsanitize=thread
sanitized thread_static -fsanitize=thread -static-libtsan
sanitized undefined -fsanitize=undefined
sanitized leaks -fsanitize=leak

cat >"$work/head.h" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#define WRAP(type, name, parameters, arguments) \
	type name parameters { static type (*real) parameters; \
		if (!real) real = (type (*) parameters)dlsym(RTLD_NEXT, #name); return real arguments; }
C
wrapper() {
	printf '#include "head.h"\nWRAP(%s, %s, %s, %s)\n' "$2" "$1" "$3" "$4" >"$work/$1.c"
	"$cc" -fno-builtin -shared -fPIC "$work/$1.c" -o "$work/$1.so" -ldl || return
	"$cc" "$work/program.c" -o "$work/program" -ldl
	verdict "$1_in_front" 800 "$(LD_PRELOAD="$work/$1.so:$library" "$work/program" "$sim/libcuda.so.1" 2>&1 | tail -n 1)"
	verdict "$1_behind" 800 "$(LD_PRELOAD="$library:$work/$1.so" "$work/program" "$sim/libcuda.so.1" 2>&1 | tail -n 1)"
}
wrapper dl_iterate_phdr int '(int (*f)(struct dl_phdr_info *, size_t, void *), void *d)' '(f, d)'
wrapper strrchr 'char *' '(const char *s, int c)' '(s, c)'
wrapper strcmp int '(const char *a, const char *b)' '(a, b)'
wrapper memcmp int '(const void *a, const void *b, size_t n)' '(a, b, n)'
wrapper strlen size_t '(const char *s)' '(s)'

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
