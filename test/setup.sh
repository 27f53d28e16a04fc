#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs what building, testing and the demo need on Debian or Ubuntu; with --containers also what some tests run
# besides, containers above all, where the system has packages of it. Services of new packages
# are neither started nor left enabled. With nothing to do it calls no apt.
set -euo pipefail

# What is needed, and the package that has it. Presence decides, not dpkg: a site may have Slurm
# from elsewhere.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need_file() {
	local package=$1 pattern
	shift
	for pattern; do
		compgen -G "$pattern" >/dev/null && return
	done
	missing+=("$package")
}

missing=()
need slurmctld slurmctld
need slurmd slurmd
need slurmdbd slurmdbd
need sbatch slurm-client
need_file slurm-wlm-basic-plugins '/usr/lib*/slurm*/select_cons_tres.so' '/usr/lib/*/slurm*/select_cons_tres.so'
need_file slurm-wlm-mysql-plugin '/usr/lib*/slurm*/accounting_storage_mysql.so' '/usr/lib/*/slurm*/accounting_storage_mysql.so'
need munged munge
need mariadbd mariadb-server
need mariadb-install-db mariadb-server
need_file libslurm-dev '/usr/include/slurm/spank.h' '/usr/local/include/slurm/spank.h'
# Slurm links one of these; the Lua scripts are tried with each.
need lua5.1 lua5.1
need lua5.3 lua5.3
need lua5.4 lua5.4
# An example is a program in Python.
need python3 python3
need gcc gcc
need_file libc6-dev '/usr/include/stdio.h'
need make make
# Part of make lint.
need codespell codespell
need mandoc mandoc
need ps procps
need useradd passwd
# What apt knows by name alone it shows as well, so it is asked whether it would install it.
offered() { apt-get -s install "$1" >/dev/null 2>&1; }
want() { command -v "$1" >/dev/null || ! offered "$2" || missing+=("$2"); }
# Holds the alerts against series.
want promtool prometheus
if [[ ${1:-} == --containers ]]; then
	want bwrap bubblewrap
	want ch-run charliecloud-runtime
	want podman podman
	want crun crun
	want newuidmap uidmap
	want busybox busybox-static
	want slurmrestd slurmrestd
	# What programs are built and run with that look up the C library's functions by name.
	want_file() { compgen -G "$2" >/dev/null || ! offered "$1" || missing+=("$1"); }
	want valgrind valgrind
	want clang clang
	llvm=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p')
	want_file "libclang-rt-${llvm:-none}-dev" '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-*.a'
	want_file libjemalloc2 '/usr/lib/*/libjemalloc.so.2'
	want_file libgoogle-perftools4 '/usr/lib/*/libtcmalloc.so.4'
	want_file libtcmalloc-minimal4 '/usr/lib/*/libtcmalloc_minimal.so.4'
	want_file libmimalloc2.0 '/usr/lib/*/libmimalloc.so.[23]'
	want_file libmimalloc3 '/usr/lib/*/libmimalloc.so.[23]'
fi
((${#missing[@]})) || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

if ! command -v apt-get >/dev/null; then
	echo "setup: not a Debian system; please install what these packages hold: ${missing[*]}" >&2
	exit 1
fi
if ((EUID != 0)); then
	exec sudo "$0" "$@"
fi

echo "setup: installing ${missing[*]}"
policy=/usr/sbin/policy-rc.d
saved=
wants_before=$(mktemp)
list_wants() { find /etc/systemd/system -path '*.wants/*' -type l 2>/dev/null | sort; }
list_wants >"$wants_before"

# Debian's own switch for "install, but start nothing". A site's own file is put back.
undo() {
	if [[ -n $saved ]]; then
		mv -f "$saved" "$policy"
	else
		rm -f "$policy"
	fi
	# Packages enable their units when installed; those that were not enabled before are
	# disabled again, and no others.
	comm -13 "$wants_before" <(list_wants) | while read -r link; do
		case $(basename "$link") in
		slurmctld.service | slurmd.service | slurmdbd.service | munge.service | mariadb.service | mysql.service | podman* | prometheus* | slurmrestd.service)
			rm -f "$link" ;;
		esac
	done
	rm -f "$wants_before"
}
trap undo EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [[ -e $policy || -L $policy ]]; then
	saved=$(mktemp -u "$policy.XXXXXX")
	mv "$policy" "$saved"
fi
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 0755 "$policy"

export DEBIAN_FRONTEND=noninteractive
quietly=$(dirname "$0")/quietly.sh
"$quietly" "setup: apt-get update" apt-get -qy update
"$quietly" "setup: apt-get install" \
	apt-get -qy -o Dpkg::Use-Pty=0 install --no-install-recommends "${missing[@]}"
echo "setup: done; no service was started or enabled"
