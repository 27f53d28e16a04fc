#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Before slurm-vgpu or its plugin is removed: refuses while jobs hold slices here, as nobody would give them back, and while Slurm
# still uses what would be gone, as it fails every job then. An upgrade is not asked: what jobs were started with stays with them.
set -e
case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac
config=$(vgpuctl config 2>/dev/null || true)
run=$(printf '%s\n' "$config" | sed -n 's/^run_dir: *"\{0,1\}\([^" ]*\)"\{0,1\}.*/\1/p')
run=${run:-/run/slurm-vgpu}
# One slice on a line, its job first.
jobs=$(grep -o '^\[[0-9]*' "$run/state.json" 2>/dev/null | tr -d '[' | sort -un | tr '\n' ' ')
if [ -n "$jobs" ] && [ ! -e "$run/remove-anyway" ]; then
	cat >&2 <<END
slurm-vgpu: not removed: jobs hold slices of this node's GPUs: $jobs
Without its epilog nobody gives them back, the node drains when they end, and no step of theirs starts any more.
Drain the node and let them end, or, to remove it all the same:  touch $run/remove-anyway
END
	exit 1
fi
# The plugin's package may stand alone, on a login node: what srun has loaded shows in its help.
uses=$(vgpu-gres check --in-use 2>/dev/null || true)
if [ -z "$uses" ] && timeout 20 srun --help 2>/dev/null </dev/null | grep -q -e '--vgpu-mem'; then
	uses="plugstack.conf: srun loads spank_vgpu.so"
fi
if [ -n "$uses" ] && [ ! -e "$run/remove-anyway" ]; then
	cat >&2 <<END
slurm-vgpu: not removed: Slurm still uses it on this machine:
$uses
Without it every job fails here, and the node drains. Take these lines out on all hosts, the plugin's first, stop slurmctld, restart slurmd, start slurmctld,
and remove it then. To remove it all the same, or where an upgrade of Slurm puts another plugin in its place:  mkdir -p $run; touch $run/remove-anyway
END
	exit 1
fi
if printf '%s\n' "$config" | grep -q '^device_files: *"\{0,1\}closed'; then
	cat >&2 <<'END'
slurm-vgpu: the device files of this node's GPUs are closed to its users (device_files: closed), and stay so without slurm-vgpu.
`vgpuctl devices open` opens them, before it is removed; at boot a file in /etc/modprobe.d with NVreg_ModifyDeviceFiles=0 matters as well.
END
fi
# What no job was started with that is still here; who needs it makes it again. An empty list of libraries is what tasks' own were bound over.
if [ -z "$jobs" ]; then
	for folder in builds pages; do
		if umount "$run/$folder" 2>/dev/null; then
			rmdir "$run/$folder" || true
		fi
	done
	preload=/etc/ld.so.preload
	if [ -f "$preload" ] && [ ! -L "$preload" ] && [ ! -s "$preload" ]; then
		rm -f "$preload"
	fi
fi
