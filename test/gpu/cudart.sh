#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Whether programs of older CUDA runtimes, linked statically or not, meet their limit on a real GPU. As root,
# without Slurm, with what cudart/build.sh has made of one or several toolkits:
#
#   test/gpu/cudart.sh --programs FOLDER [--mem MIB]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${VGPU_GPU_BUILD:-$here/../../build/gpu}
[ -x "$build/witness" ] && [ -x "$build/mkstep" ] || "$here/build.sh" "$build"
exec "${PYTHON:-python3}" -u "$here/cudart/run.py" --build "$build" "$@"
