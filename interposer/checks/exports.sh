#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Exactly the tables' wrapped functions are exported, dlsym and dlvsym in both their versions, ioctl, and what the guards ask.
#   exports.sh LIBRARY
set -u
here=$(dirname "$(readlink -f "$0")")
api=$here/../api
# A wrapped row is one whose kind is not USE.
wanted=$(sed -n 's/^VGPU_\(CUDA\|NVML\)(\([A-Z0-9_]*\), *\([A-Za-z0-9_]*\),.*/\2 \3/p' "$api/cuda.def" "$api/nvml.def" |
	awk '$1 != "USE" { print $2 }' | sort)
case $(uname -m) in
aarch64) old=GLIBC_2.17 ;;
*) old=GLIBC_2.2.5 ;;
esac
exported=$(readelf --dyn-syms -W "$1" | awk '$7 != "UND" && ($5 == "GLOBAL" || $5 == "WEAK") && $4 != "OBJECT" { print $8 }' | sed 's/@@VGPU_1$//' | sort)
expected=$(printf '%s\n' "$wanted" vgpu_guarded_function "dlsym@$old" dlsym@@GLIBC_2.34 "dlvsym@$old" dlvsym@@GLIBC_2.34 "ioctl@@$old" | sort)
if [ "$exported" = "$expected" ]; then
	echo "PASS exports_are_the_tables"
else
	echo "FAIL exports_are_the_tables: $(printf '%s\n' "$exported" "$expected" | sort | uniq -u | tr '\n' ' ')"
	exit 1
fi
