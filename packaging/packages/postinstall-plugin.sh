#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# After the package of the plugin: says what comes next. Starts and enables nothing.
set -e
case "${1:-}" in
configure | 1) ;;
*) exit 0 ;;
esac
rm -f /run/slurm-vgpu/remove-anyway # it was for the plugin before this one
if [ -n "${2:-}" ]; then
	exit 0
fi
cat <<'END'
spank_vgpu.so is installed, and not active yet: copy /usr/share/slurm-vgpu/plugstack.d/vgpu.conf to where your
plugstack.conf includes files from, take the comment sign of its last line away, and restart slurmd. spank_vgpu.so(8) tells more.
END
