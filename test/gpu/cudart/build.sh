#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Links cudart.c with the runtime of a toolkit, statically and not: build.sh OUTPUT-FOLDER TOOLKIT NAME. TOOLKIT is
# a folder with include/ and lib64/, or lib/x86_64-linux-gnu/ as Debian's packages have it below usr. Makes
# NAME-static, NAME-shared and lib-NAME/, in which the shared runtime is.
set -eu
out=${1:?usage: build.sh OUTPUT-FOLDER TOOLKIT NAME} toolkit=${2:?} name=${3:?}
here=$(cd "$(dirname "$0")" && pwd)
CC=${CC:-cc}
cflags="-std=gnu11 -O2 -Wall -Wextra -Werror -isystem $toolkit/include"
for lib in "$toolkit/lib64" "$toolkit/lib/x86_64-linux-gnu" "$toolkit/targets/x86_64-linux/lib"; do
	[ -e "$lib/libcudart_static.a" ] && break
done
[ -e "$lib/libcudart_static.a" ] || { echo "build.sh: no libcudart_static.a below $toolkit" >&2; exit 1; }
mkdir -p "$out/lib-$name"
$CC $cflags "$here/cudart.c" -o "$out/$name-static" "$lib/libcudart_static.a" -ldl -lpthread -lrt
shared=$(readlink -f "$lib"/libcudart.so)
cp "$shared" "$out/lib-$name/$(readelf -dW "$shared" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')"
$CC $cflags "$here/cudart.c" -o "$out/$name-shared" "$out/lib-$name"/libcudart.so.* -Wl,-rpath,"\$ORIGIN/lib-$name"
