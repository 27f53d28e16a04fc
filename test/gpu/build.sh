#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the GPU tests' programs: build.sh OUTPUT-FOLDER [time]. Needs a C compiler and a CUDA toolkit (CUDA_HOME, or what
# nvcc in PATH belongs to); what needs a missing part of it is left out. With "time" only what time.sh and kept.sh need.
set -eu
out=${1:?usage: build.sh OUTPUT-FOLDER [time]}
part=${2:-all}
here=$(cd "$(dirname "$0")" && pwd)
CC=${CC:-cc}
NVCC=${NVCC:-$(command -v nvcc || true)}
CUDA_HOME=${CUDA_HOME:-${NVCC:+$(dirname "$(dirname "$(readlink -f "$NVCC")")")}}
include=${CUDA_INCLUDE:-${CUDA_HOME:-/usr}/include}
cflags="-std=gnu11 -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -I$here -I$here/../../interposer -isystem $include"
mkdir -p "$out"

pids=()
compile() { "$@" & pids+=($!); }
wait_for_all() {
	local failed=0
	for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
	exit $failed
}
if [ "$part" = time ]; then
	compile "${NVCC:?nvcc is needed, of a CUDA toolkit}" -std=c++17 -O2 -arch="${CUDA_ARCH:-sm_90}" -Xcompiler -Wall,-Wextra \
		"$here/outside/programs/tenant.cu" -o "$out/tenant" -lcuda -lpthread
	compile $CC $cflags -shared -fPIC "$here/outside/programs/handles.c" -o "$out/handles.so" -pthread
	wait_for_all
fi
compile $CC $cflags "$here/mkstep.c" -o "$out/mkstep"
compile $CC $cflags "$here/witness.c" -o "$out/witness" -ldl
compile $CC $cflags "$here/views/hold.c" -o "$out/hold" -ldl
compile $CC $cflags "$here/views/ordinals.c" -o "$out/ordinals" -ldl
if [ -e "$include/cuda.h" ]; then
	compile $CC $cflags "$here"/paths/*.c -o "$out/paths" -ldl -pthread
	compile $CC $cflags -I"$here/paths" "$here/bench/micro.c" "$here/paths/api.c" -o "$out/micro" -ldl
	compile $CC $cflags -I"$here/paths" "$here/bench/start.c" "$here/paths/api.c" -o "$out/start" -ldl
else
	echo "build.sh: no cuda.h: paths and calls are left out" >&2
fi
if [ -n "$NVCC" ]; then
	$CC $cflags -c "$here/paths/search.c" -o "$out/search.o"
	nvflags="-std=c++17 -O2 -arch=sm_90 -cudart static -Xcompiler -Wall,-Wextra -I$here -I$here/paths"
	compile "$NVCC" $nvflags "$here/paths/runtime.cu" "$out/search.o" -o "$out/runtime" -ldl
	compile "$NVCC" $nvflags -default-stream per-thread -DPER_THREAD "$here/paths/runtime.cu" "$out/search.o" -o "$out/runtime-ptds" -ldl
else
	echo "build.sh: no nvcc: the runtime's paths are left out" >&2
fi
wait_for_all
