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
both() { # NAME, and the command in front of the program
	name=$1
	shift
	verdict "${name}_without_cuda" -1 "$("$@" "$work/program" 2>&1 | tail -n 1)"
	verdict "${name}_with_cuda" 800 "$("$@" "$work/program" "$sim/libcuda.so.1" 2>&1 | tail -n 1)"
}
with() { both "$1" env LD_PRELOAD="$2"; }

options="ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LSAN_OPTIONS=detect_leaks=0"
sanitized() {
	name=$1
	compiler=$2
	shift 2
	if ! command -v "$compiler" >/dev/null 2>&1; then
		echo "SKIP $name: no $compiler here"
		return
	fi
	if ! "$compiler" "$@" "$work/program.c" -o "$work/program" -ldl 2>/dev/null; then
		echo "SKIP $name: $compiler has no $*"
		return
	fi
	both "$name" env LD_PRELOAD="$library" $options
}
sanitized address_shared "$cc" -fsanitize=address
sanitized address_static "$cc" -fsanitize=address -static-libasan
sanitized thread_shared "$cc" -fsanitize=thread
sanitized thread_static "$cc" -fsanitize=thread -static-libtsan
sanitized undefined "$cc" -fsanitize=undefined
sanitized leaks "$cc" -fsanitize=leak
sanitized clang_address_static clang -fsanitize=address
sanitized clang_address_shared clang -fsanitize=address -shared-libsan -Wl,-rpath,"$(dirname "$(clang -print-file-name=libclang_rt.asan-x86_64.so 2>/dev/null)")"
sanitized clang_thread clang -fsanitize=thread
sanitized clang_memory clang -fsanitize=memory
sanitized clang_undefined clang -fsanitize=undefined
sanitized clang_leaks clang -fsanitize=leak

cat >"$work/head.h" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#define WRAP(type, name, parameters, arguments) \
	type name parameters { static type (*real) parameters; \
		if (!real) real = (type (*) parameters)dlsym(RTLD_NEXT, #name); return real arguments; }
C
"$cc" "$work/program.c" -o "$work/program" -ldl || exit 1
wrapper() {
	printf '#include "head.h"\nWRAP(%s, %s, %s, %s)\n' "$2" "$1" "$3" "$4" >"$work/$1.c"
	"$cc" -fno-builtin -shared -fPIC "$work/$1.c" -o "$work/$1.so" -ldl || return
	with "$1_in_front" "$work/$1.so:$library"
	with "$1_behind" "$library:$work/$1.so"
}
wrapper dl_iterate_phdr int '(int (*f)(struct dl_phdr_info *, size_t, void *), void *d)' '(f, d)'
wrapper strrchr 'char *' '(const char *s, int c)' '(s, c)'
wrapper strcmp int '(const char *a, const char *b)' '(a, b)'
wrapper memcmp int '(const void *a, const void *b, size_t n)' '(a, b, n)'
wrapper strlen size_t '(const char *s)' '(s)'
wrapper getauxval 'unsigned long' '(unsigned long type)' '(type)'

# A linker that asks an auditor of each binding, alone and with such a preload.
cat >"$work/auditor.c" <<'C'
#include "head.h"
unsigned int la_version(unsigned int version) { return version; }
unsigned int la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie)
{
	(void)map, (void)lmid, (void)cookie;
	return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}
C
"$cc" -shared -fPIC "$work/auditor.c" -o "$work/auditor.so" || exit 1
both audited env LD_AUDIT="$work/auditor.so" LD_PRELOAD="$library"
both audited_with_a_wrapper env LD_AUDIT="$work/auditor.so" LD_PRELOAD="$work/dl_iterate_phdr.so:$library"
both bound_at_once env LD_BIND_NOW=1 LD_PRELOAD="$work/strcmp.so:$library"

for allocator in libjemalloc.so.2 libtcmalloc.so.4 libtcmalloc_minimal.so.4 libmimalloc.so.2; do
	found=$(ls /usr/lib/*/$allocator /usr/lib64/$allocator 2>/dev/null | head -n 1)
	name=$(echo "${allocator%%.*}" | sed 's/^lib//')
	if [ -n "$found" ]; then
		with "$name" "$found:$library"
	else
		echo "SKIP $name: no $allocator here"
	fi
done
if command -v valgrind >/dev/null 2>&1; then
	both valgrind env LD_PRELOAD="$library" valgrind -q --error-exitcode=9
else
	echo "SKIP valgrind: no valgrind here"
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
