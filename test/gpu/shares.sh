#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Whether shares of a GPU's time are true, by NVML and by counted work. As root, without Slurm:
#
#   test/gpu/shares.sh [--only single,pairs] [--loads training,mlp] [--shares 25,50] [--seconds 3] [--out FOLDER]
#
# Without a GPU, with loads that limit themselves as a right limiter would, to try the measurement:
#
#   test/gpu/shares.sh --sim build/sim --pretend
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${VGPU_GPU_BUILD:-$here/../../build/gpu}
"$here/build.sh" "$build" shares
exec "${PYTHON:-python3}" -u "$here/shares/shares.py" --build "$build" "$@"
