#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# What vgpud keeps on a GPU: jobs of two users, by sbatch, on a private Slurm of its own. A line for each
# figure, met or MISSED beside what it should be. As root, on a machine whose GPUs nobody else uses:
#
#   test/gpu/kept.sh [--files FOLDER] [--limit SECONDS] PART[:I/N]…    smoke is a part that says whether it works here
#   test/gpu/kept.sh --help                                            lists the parts and options
#   test/gpu/kept.sh --simulated PART…                                 the same on simulated GPUs: that the script itself works
#
# It ends itself, with all that it began, after --limit seconds (540). Parts that take longer are played in several calls: weights:1/3.
#
# Needs: slurmctld, slurmd, Slurm's commands and plugins (with Lua), munge; no database, no network. Their packages are the user's to bring, of
# the Slurm that the plugin was built with. A CUDA toolkit, python3, for some parts PyTorch; a driver as ../../docs/verified/time-from-outside.md has it.
# Where there is no Go:
#
#   test/gpu/kept.sh --pack      where Go and that Slurm are: builds, and puts what is needed into build/kept.tar.gz (some 35 MiB)
#
# The tree with that one file of build/ is all that the other machine takes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build
GO=${GO:-$(command -v go || true)}
packed=$build/kept.tar.gz
if [ -n "$GO" ]; then
	make -s -C "$root" build build/gpu/kept build/gpu/outside >/dev/null
	if [ "${1:-}" = --pack ]; then
		staged=$(mktemp -d)
		trap 'rm -rf "$staged"' EXIT
		cd "$build"
		cp --parents vgpu-prolog vgpu-epilog vgpu-gres vgpuctl vgpu-draw vgpu-exporter vgpud ./*.so sim/vgpu-fill sim/vgpu-busy gpu/kept gpu/outside "$staged"
		find "$staged" -type f -exec strip --strip-debug {} +
		tar -C "$staged" -czf "$packed" .
		du -h "$packed"
		exit
	fi
elif [ -e "$packed" ]; then
	tar -xzf "$packed" -C "$build"
fi
[ -x "$build/gpu/kept" ] || {
	echo "kept.sh: there is neither Go nor $packed: test/gpu/kept.sh --pack where Go is" >&2
	exit 1
}
limit=540
simulated=
options=()
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help | -help) exec "$build/gpu/kept" --help ;;
	--limit) limit=$2 && shift ;;
	--files) options+=(--files "$(mkdir -p "$2" && cd "$2" && pwd)") && shift ;;
	--simulated) simulated=1 && options+=("$1") ;;
	*) options+=("$1") ;;
	esac
	shift
done
[ "$(id -u)" = 0 ] || {
	echo "kept.sh: root is needed, for a Slurm of its own" >&2
	exit 1
}
missing=
for program in slurmctld slurmd munged sbatch squeue scancel; do
	PATH=$PATH:/usr/sbin:/sbin command -v $program >/dev/null || missing="$missing $program"
done
[ -z "$missing" ] || {
	echo "kept.sh: not installed:$missing" >&2
	exit 1
}
# Users' jobs start them.
umask 022
programs=$(mktemp -d /var/tmp/vgpu-programs-XXXXXX)
trap 'rm -rf "$programs"' EXIT
chmod 755 "$programs"
if [ -z "$simulated" ]; then
	"$here/build.sh" "$programs" time
	nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
fi
"${CC:-cc}" -std=gnu11 -O2 -Wall -Wextra -Werror -D_GNU_SOURCE "$here/outside/programs/launches.c" -o "$programs/launches" -ldl -pthread
cp "$build/gpu/outside" "$here"/outside/programs/*.py "$here"/kept/*.py "$programs"
PATH=$PATH:/usr/sbin slurmd -V
uname -r
timeout -k 30 "$limit" "$build/gpu/kept" --build "$build" --programs "$programs" ${options[@]+"${options[@]}"}
