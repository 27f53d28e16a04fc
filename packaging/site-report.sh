#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# A text about this node for docs/supported.md: its systems, driver and GPUs, whether a memory limit holds exactly, and whether the
# driver takes vgpud's calls. As root on a compute node:
#
#   make site-report                        from a checkout; ARGS="--gpu 1 --config FILE"
#   /usr/share/slurm-vgpu/site-report.sh    from the package: memory limits are not tried
#
# A part that fails says FAILED, and the rest goes on. Changes nothing; for some seconds a program takes 2000 MiB of one GPU.
# Host names, users, UUIDs and serial numbers are left out.
set -u
export LC_ALL=C NO_COLOR=1
top=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
[[ ! -x $top/build/vgpuctl ]] || PATH=$top/build:$PATH
gpu=0 config=()
while (($#)); do
	case $1 in
	--gpu) gpu=${2:?site-report.sh: --gpu INDEX}; shift 2 ;;
	--config) config=(--config "${2:?site-report.sh: --config FILE}"); shift 2 ;;
	*) echo "usage: site-report.sh [--gpu INDEX] [--config FILE]" >&2; exit 2 ;;
	esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 0755 "$work"

# ask WHAT COMMAND…: each line that a command prints, behind the name.
ask() {
	local what=$1 code=0
	shift
	timeout 60 "$@" >"$work/said" 2>"$work/errors" </dev/null || code=$?
	((code == 0)) || echo "$what: FAILED ($code): $(cat "$work/errors" "$work/said" | head -n 1)"
	((code != 0)) || sed "s|^|$what: |" "$work/said"
}

system() {
	ask kernel uname -srm
	ask system sh -c '. /etc/os-release && echo "$PRETTY_NAME"'
	ask "C library" sh -c 'getconf GNU_LIBC_VERSION'
	ask cgroups sh -c 'stat -fc %T /sys/fs/cgroup; [ ! -d /sys/fs/cgroup/unified ] || echo "v1 and v2 (hybrid)"'
	ask systemd sh -c 'systemctl --version | head -n 1'
	ask SELinux sh -c 'if command -v getenforce >/dev/null; then getenforce; else echo "not installed"; fi'
}

slurm() {
	ask Slurm sh -c 'slurmd -V 2>/dev/null || timeout 20 scontrol --version'
	# Whose package it is tells Debian's, SchedMD's and OpenHPC's apart.
	ask "package of Slurm" sh -c 'program=$(readlink -f "$(command -v scontrol)") || exit
		owner=$(dpkg -S "$program" 2>/dev/null | cut -d: -f1); [ -z "$owner" ] || exec dpkg-query -W "$owner"
		rpm -qf "$program" 2>/dev/null || echo "none, $program"'
	ask "slurm.conf" sh -c 'timeout 20 scontrol show config >"$0" || exit
		grep -E "^(SelectType|SelectTypeParameters|ProctrackType|TaskPlugin|CgroupPlugin|GresTypes|PrologFlags|JobContainerType|NamespaceType|AccountingStorageType) " "$0"' "$work/config"
}

driver() {
	# The builder's name stands in parentheses.
	ask "kernel module" sh -c 'line=$(head -n 1 /proc/driver/nvidia/version) && echo "$line" | sed "s/ *([^)]*)//g"'
	ask GPU nvidia-smi --query-gpu=index,name,compute_cap,memory.total,compute_mode,mig.mode.current,persistence_mode,driver_version --format=csv,noheader
	ask inventory vgpu-gres ${config[@]+"${config[@]}"} inventory
}

# The names of the checks are enough, but for vgpud: whether the driver takes its calls.
checks() {
	local state said

	ask "slurm-vgpu" vgpuctl --version
	timeout 120 vgpuctl ${config[@]+"${config[@]}"} doctor >"$work/doctor" 2>"$work/errors" </dev/null
	[[ -s $work/doctor ]] || { echo "doctor: FAILED: $(head -n 1 "$work/errors")"; return; }
	sed -nE 's/^(ok|warn|fail) +(vgpud: .*)/\2 [\1]/p' "$work/doctor"
	for state in ok warn fail; do
		said=$(sed -nE "s/^$state +([^:]*): .*/\1/p" "$work/doctor" | sort | uniq -c | awk '{n = $1; $1 = ""; print substr($0, 2) (n > 1 ? " (" n ")" : "")}' | paste -sd, | sed 's/,/, /g')
		echo "doctor, $state: ${said:-none}"
	done
}

# Of a step as the prolog and the plugin make one, with the library in front of a program that takes all it gets.
memory() {
	local limit_mib=2000 uuid device_mib state step held said library=$top/build/libslurm-vgpu.so

	[[ -e $top/test/gpu/mkstep.c ]] || { echo "memory: not tried: from a checkout, make site-report"; return; }
	command -v "${CC:-cc}" python3 >"$work/said" && [[ $(wc -l <"$work/said") == 2 ]] || { echo "memory: not tried: needs a C compiler and python3"; return; }
	[[ -e $library ]] || library=/usr/lib/slurm-vgpu/libslurm-vgpu.so
	[[ -e $library ]] || { echo "memory: not tried: no libslurm-vgpu.so: make build, or install the package"; return; }
	read -r uuid device_mib state < <(vgpu-gres ${config[@]+"${config[@]}"} inventory 2>/dev/null | awk -v gpu="$gpu" '$1 == gpu && $3 ~ /^GPU-/ {print $3, $6, $NF}')
	[[ -n ${uuid:-} && $state == ok ]] || { echo "memory: FAILED: vgpu-gres inventory has no GPU $gpu fit for use"; return; }
	for program in mkstep witness; do
		"${CC:-cc}" -std=gnu11 -O2 -D_GNU_SOURCE -I"$top/test/gpu" -I"$top/interposer" "$top/test/gpu/$program.c" -o "$work/$program" -ldl 2>"$work/errors" ||
			{ echo "memory: FAILED: $program.c: $(head -n 1 "$work/errors")"; return; }
	done
	install -m 0755 "$library" "$work/libslurm-vgpu.so" && install -m 0644 "$top/examples/fill.py" "$work/fill.py" # may be in a home
	step=$("$work/mkstep" --dir "$work/steps" --gpu "$uuid" --mem $limit_mib --device-mem "$device_mib" --job 1 --uid 65534 2>"$work/errors") ||
		{ echo "memory: FAILED: a step: $(head -n 1 "$work/errors")"; return; }
	ask "memory, GPU $gpu, limit $limit_mib MiB" env CUDA_VISIBLE_DEVICES="$uuid" "$work/witness" --gpu "$uuid" --uid 65534 --every 2 --report "$work/held" \
		--preload "$work/libslurm-vgpu.so" --step "$step" -- python3 "$work/fill.py" --step 2 --hold 1
	held=$(cat "$work/held" 2>/dev/null || echo 0)
	said="held at most $((held >> 20)) MiB, by the driver"
	# cuMemAlloc takes 2 MiB at once.
	if ((held > limit_mib << 20)); then said+=": FAILED: over the limit"
	elif ((held == 0)); then said="FAILED: the driver says nothing of the program"
	elif (((limit_mib << 20) - held < 2 << 20)); then said+=": exact"
	else said+=": ends $((limit_mib - (held >> 20))) MiB early"; fi
	echo "memory, GPU $gpu, limit $limit_mib MiB: $said"
}

# What names the site, its machines and its GPUs goes.
nameless() {
	local names=() name script=()
	mapfile -t names < <({ hostname; hostname -s; hostname -f; echo "${SLURMD_NODENAME:-}"; scontrol show config 2>/dev/null | sed -nE 's/^SlurmctldHost\[[0-9]+\] *= *([^( ]*).*/\1/p'; } 2>/dev/null | awk -F. '{print; print $1}' | awk 'length > 2' | sort -ru)
	for name in "${names[@]}"; do
		script+=(-e "s/(^|[^[:alnum:]_-])$(sed 's/[][\.*^$/|+?(){}]/\\&/g' <<<"$name")($|[^[:alnum:]_-])/\1HOST\2/g")
	done
	sed -E -u -e 's/(GPU|MIG)-[0-9a-fA-F]{8}-[0-9a-fA-F-]+/\1-…/g' -e 's/[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]/PCI/g' -e 's|/home/[^ /]*|/home/USER|g' ${script[@]+"${script[@]}" "${script[@]}"} # twice: two names may stand with one character between them
}

{
	echo "slurm-vgpu site report, 1"
	((EUID == 0)) || echo "root: FAILED: run it as root: the driver's calls and memory limits cannot be tried"
	system
	slurm
	driver
	checks
	memory
	echo "end of the report: read it, and send it in as docs/supported.md says"
} 2>&1 | nameless
