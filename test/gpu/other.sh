#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# other.sh OUTPUT-FOLDER: builds the programs of other interfaces than CUDA for test/gpu/guard.sh. Needs their headers and loaders
# (opencl-headers, ocl-icd-opencl-dev, libvulkan-dev, libegl-dev, libopengl-dev, libffmpeg-nvenc-dev); which has none is left out.
set -u
out=${1:?usage: other.sh OUTPUT-FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
build() {
	local name=$1
	shift
	${CC:-cc} -std=gnu11 -O2 -Wall -Wextra -Werror -D_GNU_SOURCE "$here/other/$name.c" -o "$out/$name" "$@" || echo "other.sh: $name is left out" >&2
}
build opencl -lOpenCL
build vulkan -lvulkan
build opengl -lEGL -lOpenGL
build nvdec -ldl
