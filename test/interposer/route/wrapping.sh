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

# An overlay with a dlsym of its own hooks some names and hands the others on: by a call, or by a jump with its caller's address; to what
# it was answered, or to what it found in the C library itself. A lookup is its own to answer but for names of ours.
cat >"$work/overlay.c" <<'C'
#include "head.h"
#include <string.h>
static int counted;
static int hooked(unsigned int flags) { (void)flags; return 7; }
int overlay_count(void) { return counted; }
__attribute__((optimize("O2"))) void *dlsym(void *handle, const char *name)
{
	static void *(*real)(void *, const char *);

	if (real == NULL)
		real = FIND;
	counted++;
	if (strcmp(name, "hooked") == 0 || strcmp(name, "cuInit") == 0)
		return (void *)hooked;
	END
}
C
cat >"$work/overlaid.c" <<'C'
#include "head.h"
#include <stdio.h>
int main(int argc, char **argv)
{
	int (*count)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "overlay_count");
	int (*hooked)(unsigned int) = (int (*)(unsigned int))dlsym(RTLD_NEXT, "hooked"), (*init)(unsigned int) = NULL;
	void *cuda = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL, *(*again)(void *, const char *) = dlsym(RTLD_NEXT, "dlsym");

	if (cuda != NULL)
		init = (int (*)(unsigned int))again(cuda, "cuInit");
	int missing = dlsym(RTLD_DEFAULT, "no_such_name") == NULL, there = dlsym(RTLD_NEXT, "puts") != NULL;
	printf("%d %d %d %d %d\n", count != NULL ? count() : -1, hooked != NULL ? hooked(0) : -1, missing, there,
	       init != NULL ? init(0) : -1);
	return 0;
}
C
"$cc" "$work/overlaid.c" -o "$work/overlaid" -ldl || exit 1
overlay() { # NAME FIND END
	"$cc" -DFIND="$2" -DEND="$3" -O2 -fno-builtin -shared -fPIC "$work/overlay.c" -o "$work/overlay.so" -ldl || exit 1
	for order in "$work/overlay.so:$library" "$library:$work/overlay.so"; do
		verdict "$1" '4 7 1 1 -1' "$(LD_PRELOAD=$order timeout 10 "$work/overlaid" 2>&1 | tail -n 1)"
		verdict "$1_with_cuda" '4 7 1 1 800' "$(LD_PRELOAD=$order timeout 10 "$work/overlaid" "$sim/libcuda.so.1" 2>&1 | tail -n 1)"
	done
}
behind='(void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", OLD)'
case $(uname -m) in
x86_64) behind=$(echo "$behind" | sed 's/OLD/"GLIBC_2.2.5"/') ;;
*) behind=$(echo "$behind" | sed 's/OLD/"GLIBC_2.17"/') ;;
esac
opened=$(echo "$behind" | sed 's/RTLD_NEXT/dlopen("libc.so.6", RTLD_NOW)/')
overlay overlay_that_calls "$behind" 'void *volatile found = real(handle, name); return found;'
overlay overlay_that_jumps "$behind" 'return real(handle, name);'
overlay overlay_that_opens "$opened" 'return real(handle, name);'

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

for allocator in libjemalloc.so.2 libtcmalloc.so.4 libtcmalloc_minimal.so.4 'libmimalloc.so.[23]'; do
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
