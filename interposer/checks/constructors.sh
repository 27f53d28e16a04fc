#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# The library is in every process of a job, so loading it must run nothing but the one look at who
# comes first (scope.c), and unloading nothing at all.
#   constructors.sh LIBRARY
set -u
found=$(readelf -SW "$1" | grep -E '\.(init|fini|preinit|fini_array|preinit_array|ctors|dtors) ')
dynamic=$(readelf -dW "$1" | grep -E '\((INIT|FINI|FINI_ARRAY|PREINIT_ARRAY)\)')
size=$(readelf -dW "$1" | awk '/\(INIT_ARRAYSZ\)/ {print $3}')
if [ -z "$found$dynamic" ] && [ "$size" = 8 ]; then
	echo "PASS only_scope_runs_at_load"
else
	echo "FAIL only_scope_runs_at_load: $found $dynamic, $size bytes of constructors"
	exit 1
fi
