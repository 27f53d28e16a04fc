#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# The library is in every process of a job, so loading it must run nothing.
#   constructors.sh LIBRARY
set -u
found=$(readelf -SW "$1" | grep -E '\.(init|fini|preinit)(_array)? |\.(ctors|dtors) ')
dynamic=$(readelf -dW "$1" | grep -E '\((INIT|FINI|INIT_ARRAY|FINI_ARRAY|PREINIT_ARRAY)\)')
if [ -z "$found$dynamic" ]; then
	echo "PASS no_code_runs_at_load"
else
	echo "FAIL no_code_runs_at_load: $found $dynamic"
	exit 1
fi
