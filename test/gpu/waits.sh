#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Whether programs end whose streams are held back by a share, whatever they call meanwhile: a table of program,
# share, alone or beside a neighbour. Who does not end within 20 s hangs. As root, without Slurm:
#
#   test/gpu/waits.sh [--shares 10,50,90] [--where alone,beside] [--programs graphs,memory] [--native]
#   test/gpu/waits.sh --probe                which calls wait for a stream that is held back, natively
#
# Without a GPU: test/gpu/waits.sh --sim build/sim
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${VGPU_GPU_BUILD:-$here/../../build/gpu}
"$here/build.sh" "$build" waits
exec "${PYTHON:-python3}" -u "$here/waits/waits.py" --build "$build" "$@"
