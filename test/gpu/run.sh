#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Where each path and each framework meets its limit, on a real GPU. As root, without Slurm:
#
#   test/gpu/run.sh [--mem MIB] [--stage paths,whole,frameworks] [--out FOLDER]
#
# In a job, with the job's own limit:
#
#   sbatch --gres=vgpu:1 --vgpu-mem=3000 --wrap 'test/gpu/run.sh --in-job'
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${VGPU_GPU_BUILD:-$here/../../build/gpu}
# In a job somebody else may have made it.
[ -x "$build/mkstep" ] && [ ! -w "$build" ] || "$here/build.sh" "$build"
exec "${PYTHON:-python3}" -u "$here/run.py" --build "$build" "$@"
