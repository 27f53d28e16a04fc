#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# After the package slurm-vgpu: makes its folders, which are made at boot otherwise, and says what comes next. Starts
# and enables nothing.
set -e
case "${1:-}" in
configure | 1 | 2) ;;
*) exit 0 ;;
esac
if command -v systemd-tmpfiles >/dev/null 2>&1; then
	systemd-tmpfiles --create slurm-vgpu.conf || true
fi
# Units of earlier builds: vgpud has the work of the timers, and another program that of the metrics.
old='slurm-vgpu-audit.timer slurm-vgpu-records.timer slurm-vgpu-sample.timer slurm-vgpu-sweep.timer slurm-vgpu-metrics.timer slurm-vgpu-metrics.socket'
if [ -d /run/systemd/system ]; then
	systemctl stop $old 2>/dev/null || true
fi
for unit in $old; do
	for link in /etc/systemd/system/*.wants/$unit; do
		if [ -L "$link" ] && [ ! -e "$link" ]; then
			rm -f "$link"
			case $unit in
			*metrics.timer) echo "slurm-vgpu: $unit is gone; enable slurm-vgpu-textfile.service in its place" ;;
			*metrics.socket) echo "slurm-vgpu: $unit is gone; enable slurm-vgpu-exporter.socket in its place" ;;
			esac
		fi
	done
done
# Units that have changed; none is started. vgpud takes over by itself.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl try-restart slurm-vgpu-exporter.service slurm-vgpu-textfile.service || true
fi
# An upgrade has been told before: dpkg names the old version, rpm counts.
if [ "$1" = 2 ] || [ -n "${2:-}" ]; then
	exit 0
fi
cat <<'END'
slurm-vgpu is installed, and nothing of it is active yet. On a node with GPUs, next:
  vgpu-gres inventory --write     write down this node's GPUs
  vgpu-gres gres.conf             print its lines for gres.conf; vgpu-gres slurm.conf those for slurm.conf
  vgpu-gres check                 say what else is missing (Prolog, Epilog, plugstack.conf)
  systemctl enable slurm-vgpu-inventory.service slurm-vgpu-vgpud.service
The plugin's line comes into plugstack.conf last, when the plugin is on all hosts that read that file:
where it is missing every job fails. /usr/share/doc/slurm-vgpu has README.md with the steps, and docs/admin.md.
END
