#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# enter.sh ROOT GOCACHE GOROOT GOMODCACHE COMMAND…: in a mount namespace that the caller made, makes ROOT
# the root and runs the command in the tree there. pivot_root rather than chroot: in a chroot "/"
# is no mount, and setns(2) leads out of it.
set -euo pipefail
root=$1 gocache=$2 goroot=$3 gomodcache=$4
shift 4

mount --rbind "$root" "$root"
for folder in dev sys proc; do
	mount --rbind "/$folder" "$root/$folder"
done
mount -t tmpfs -o mode=0755 run "$root/run"
# bind FROM [OPTIONS]: at the same path.
bind() {
	mkdir -p "$root$1"
	mount --bind "$1" "$root$1"
	[[ -z ${2:-} ]] || mount -o "remount,bind,$2" "$root$1"
}
bind "$goroot" ro
bind "$gomodcache" ro
bind "$gocache"
mkdir -p "$root/.before"
cd "$root"
pivot_root . .before
umount -l /.before
rmdir /.before
cd /root/slurm-vgpu
exec env -i PATH="$goroot/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME=/root LANG=C.UTF-8 \
	GOTOOLCHAIN=local GOPROXY=off GOCACHE="$gocache" GOMODCACHE="$gomodcache" GOFLAGS=-buildvcs=false "$@"
