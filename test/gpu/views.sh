#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Whether nvidia-smi, nvtop and gpustat tell the same story of a slice, and none of the neighbour's, on a real
# GPU. As root, without Slurm:
#
#   test/gpu/views.sh [--mem MIB] [--tools FOLDER] [--out FOLDER]
#   test/gpu/views.sh --ordinals      which GPUs a step's program counts, on a machine with two
#
# --tools has bin/nvtop, lib/ with its libraries, python/ with gpustat and what it imports, and terminfo/; what is
# not there is taken from the machine, and a tool that is nowhere is reported as such.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${VGPU_GPU_BUILD:-$here/../../build/gpu}
[ -x "$build/ordinals" ] && [ -x "$build/hold" ] && [ -x "$build/mkstep" ] || "$here/build.sh" "$build"
exec "${PYTHON:-python3}" -u "$here/views/views.py" --build "$build" "$@"
