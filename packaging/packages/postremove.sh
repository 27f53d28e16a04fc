#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# After the package slurm-vgpu was removed: its services and its socket would go on from systemd's memory, and start what is
# gone. An upgrade is not asked.
set -e
case "${1:-}" in
remove | purge | 0) ;;
*) exit 0 ;;
esac
rm -f /run/slurm-vgpu/remove-anyway
[ "$1" = remove ] || rm -f /var/spool/slurm-vgpu/config.yaml # the last good copy of a configuration that is gone
systemd=/run/systemd/system
if [ -d "$systemd" ]; then
	systemctl stop 'slurm-vgpu-*.socket' 'slurm-vgpu-inventory*' slurm-vgpu-exporter.service slurm-vgpu-textfile.service slurm-vgpu-vgpud.service || true
fi
# What `systemctl enable` has made; it takes nothing back of a unit that is gone.
for link in /etc/systemd/system/*.wants/slurm-vgpu-*; do
	if [ -L "$link" ] && [ ! -e "$link" ]; then
		rm -f "$link"
	fi
done
if [ -d "$systemd" ]; then
	systemctl daemon-reload || true
	systemctl reset-failed 'slurm-vgpu-*' 2>/dev/null || true # of a unit that is gone it would stay failed
fi
