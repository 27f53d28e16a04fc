#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# rooted.sh COMMAND…: in a chroot whose root is a plain folder no process can keep its mounts to
# itself, because "/" is not a mount there. As root, the command then runs where it is one.
# Everywhere else it just runs.
if [ "$(id -u)" != 0 ] || mountpoint -q /; then
	exec "$@"
fi
root=$(mktemp -d /tmp/rooted.XXXXXX) || exit 1
# Where the folder's own mount is shared, ours is seen outside too.
trap 'umount -l "$root" 2>/dev/null; rmdir "$root"' EXIT
trap : INT TERM HUP
unshare --mount --propagation unchanged sh -c '
	root=$1 && shift && mount --rbind / "$root" && mount --make-rslave "$root" || exit 1
	exec chroot "$root" sh -c '\''cd "$1" && shift && exec "$@"'\'' sh "$PWD" "$@"' sh "$root" "$@"
