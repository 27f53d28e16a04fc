#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Every wrapped row is called by name in a test.
#   rows.sh [LIBRARY]
set -u
here=$(dirname "$(readlink -f "$0")")
missing=
for symbol in $(sed -n 's/^VGPU_\(CUDA\|NVML\)(\([A-Z0-9_]*\), *\([A-Za-z0-9_]*\),.*/\2 \3/p' "$here/../api/cuda.def" "$here/../api/nvml.def" |
	awk '$1 != "USE" { print $2 }'); do
	grep -qE "\b$symbol(\(|,)" "$here"/../../test/interposer/*/*.c || missing="$missing $symbol"
done
if [ -z "$missing" ]; then
	echo "PASS every_row_has_a_test"
else
	echo "FAIL every_row_has_a_test:$missing"
	exit 1
fi
