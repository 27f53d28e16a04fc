#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# What the interposer costs on a real GPU, against no preload in the same run:
#
#   test/gpu/bench.sh [--only calls,torch,programs,import,start] [--budget SECONDS] [--out FOLDER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${VGPU_GPU_BUILD:-$here/../../build/gpu}
"$here/build.sh" "$build"
exec "${PYTHON:-python3}" -u "$here/bench/bench.py" --build "$build" "$@"
