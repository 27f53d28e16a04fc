#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# The library needs the C library and nothing else, in a version of 2012 at most, and nothing that
# ends a process (but in scope.c, before the program's first line), takes a signal or looks up names by the exported dlsym.
#   imports.sh LIBRARY
set -u
status=0
report() {
	if [ -z "$2" ]; then
		echo "PASS $1"
	else
		echo "FAIL $1:" $2
		status=1
	fi
}
undefined=$(objdump -T "$1" | grep -F '*UND*')
newest=$(echo "$undefined" | sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\))\{0,1\}.*/\1/p' | sort -V | tail -n 1)
report needs_glibc_2.17_at_most "$(printf '%s\n' "$newest" 2.17 | sort -V | tail -n 1 | grep -vx 2.17)"
report needs_only_the_c_library "$(readelf -dW "$1" | grep NEEDED | grep -v 'libc\.so\.6')"
report never_ends_a_process "$(echo "$undefined" | grep -wE 'exit|_Exit|abort|__assert.*|raise|quick_exit|__stack_chk_fail|__fortify_fail|__chk_fail')"
here=$(dirname "$(readlink -f "$0")")
report ends_none_but_one_that_would_have_no_limits "$(grep -lE '\<_exit *\(|SYS_exit' "$here"/../*/*.[chS] | grep -v '/scope\.c$')"
report takes_no_signals "$(echo "$undefined" | grep -wE 'signal|sigaction|sigprocmask|pthread_sigmask|alarm|setitimer')"
report looks_up_nothing_by_dlsym "$(echo "$undefined" | grep -wE 'dlv?sym|dlopen|dladdr|dlclose')"
report registers_nothing_for_the_end "$(echo "$undefined" | grep -wE 'atexit|on_exit|__cxa_atexit|__cxa_finalize')"
exit $status
