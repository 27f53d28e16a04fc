#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# What one root process can do with a GPU's own scheduler, from outside the programs that use it: the figures of
# docs/verified/time-from-outside.md, a line for each. As root, without Slurm, on a GPU that nobody else uses:
#
#   test/gpu/time.sh [--gpu N] PART…        N is an NVML index; smoke is a part that says whether it works here
#   test/gpu/time.sh --help                 lists the parts
#
# Needs a CUDA toolkit, python3 and a driver whose kernel modules are the open ones or have their calls. The program in Go is built here,
# or comes with the tree: `make build/gpu/outside` (where VGPU_GPU_BUILD is the folder, it is looked for there).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${VGPU_GPU_BUILD:-$here/../../build/gpu}
mkdir -p "$build"
build=$(cd "$build" && pwd)
GO=${GO:-$(command -v go || true)}
if [ -n "$GO" ]; then
	(cd "$here/outside" && CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations" "$GO" build -buildvcs=false -o "$build/outside" .)
elif [ ! -x "$build/outside" ]; then
	echo "time.sh: there is neither Go nor $build/outside: make build/gpu/outside where Go is" >&2
	exit 1
fi
case " $* " in
"  " | *" -h "* | *" --help "*) exec "$build/outside" --help ;;
esac
[ "$(id -u)" = 0 ] || {
	echo "time.sh: root is needed: it acts on other processes' channels" >&2
	exit 1
}
# Another user starts them, for one part, and cannot enter every folder.
umask 022
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
chmod 755 "$programs"
"$here/build.sh" "$programs" time
cp "$build/outside" "$here"/outside/programs/*.py "$programs"
nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
uname -r
"$programs/outside" --programs "$programs" "$@"
