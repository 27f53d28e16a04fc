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
spank_vgpu.so is installed, and not active yet. Its line comes into plugstack.conf last: when `vgpu-gres check` finds nothing but that
line, and the plugin is on all hosts that read that file. `vgpu-gres plugstack.conf` prints it; step 5 of README.md in
/usr/share/doc/slurm-vgpu says what to restart, and in which order.
END
