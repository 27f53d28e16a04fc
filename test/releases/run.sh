#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [--keep] [--dir DIR] [--mirror URL] [--tests "TARGET…"] [SUITE…]: runs tests of the committed tree on
# releases of Debian, each with the Slurm, the compiler and the C library that it ships, in a folder
# of its own. Of this machine only Go is used. Nothing is mounted where others see it, and nothing
# stays but the logs; --keep keeps the folders, which saves the next run the downloads.
set -euo pipefail
shopt -s inherit_errexit

# The Debian releases with Slurm 22.05, 24.11 and 26.05.
suites=(bookworm trixie sid)
tests="test-installed demo test-spank test-unit"
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
dir=$top/build/releases
keep=
mirror=

usage() {
	echo "usage: run.sh [--keep] [--dir DIR] [--mirror URL] [--tests \"TARGET…\"] [SUITE…]" >&2
	exit 2
}
while (($#)); do
	case $1 in
	--keep) keep=1; shift; continue ;;
	--dir | --mirror | --tests) (($# > 1)) || usage ;;
	-*) usage ;;
	*) break ;;
	esac
	declare "${1#--}=$2"
	shift 2
done
(($# == 0)) || suites=("$@")
for suite in "${suites[@]}"; do
	[[ $suite =~ ^[a-z]+$ ]] || usage
done

exec 3>&1 # what is said goes there, whatever is being logged
say() { echo "releases: $*" >&3; }
die() {
	say "$*" 3>&2
	exit 1
}
((EUID == 0)) || die "needs root: debootstrap, namespaces and slurmd do"
command -v debootstrap >/dev/null || die "needs debootstrap: apt-get install debootstrap"
go=${GO:-$(command -v go)} || die "needs go"

# The mirror is where this machine's apt has Debian from; elsewhere the caller names one.
# shellcheck disable=SC2016
mirror=${mirror:-$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Origin: Debian' 'Label: Debian' | sed -n 1p)}
[[ -n $mirror ]] || die "apt has no Debian archive here: name one with --mirror"
eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
[[ -z ${http_proxy:-} ]] || export http_proxy

mkdir -p "$dir/logs"
dir=$(cd "$dir" && pwd)
child=

# inside tells whether a process has this folder for its root: those are ours.
inside() {
	local proc
	for proc in /proc/[0-9]*; do
		[[ $proc/root -ef $1 ]] 2>/dev/null && echo "${proc#/proc/}"
	done
	return 0
}

# finish ends what runs in a folder. What was mounted there went with the last process.
finish() {
	local root=$1 pids try
	for try in TERM TERM KILL; do
		mapfile -t pids < <(inside "$root")
		((${#pids[@]})) || return 0
		kill -s "$try" "${pids[@]}" 2>/dev/null || true
		for _ in {1..300}; do
			[[ -n $(inside "$root") ]] || return 0
			sleep 0.1
		done
	done
	die "processes ${pids[*]} in $root do not end"
}

# A signal ends the tests first, and the clusters that they started end themselves.
interrupted() {
	trap '' INT TERM HUP
	say "interrupted"
	[[ -z $child ]] || { kill -s TERM -- "-$child" 2>/dev/null; wait "$child"; } || true
	exit 130
}
ended() {
	for suite in "${suites[@]}"; do
		rm -rf --one-file-system "${dir:?}/$suite.new"
		[[ -d $dir/$suite ]] || continue
		finish "$dir/$suite"
		[[ -n $keep ]] || rm -rf --one-file-system "${dir:?}/$suite"
	done
	[[ -n $keep ]] || rm -rf --one-file-system "${dir:?}/go-build"
}
trap interrupted INT TERM HUP
trap ended EXIT

# run CMD…: in a process group of its own, so that one signal reaches all of it.
run() {
	local code=0
	set -m
	"$@" </dev/null 3>&- &
	child=$!
	set +m
	wait "$child" || code=$?
	child=
	return "$code"
}

# bootstrap makes the folder of a suite; half of one is never taken for it.
bootstrap() {
	local suite=$1
	[[ ! -d $dir/$suite ]] || return 0
	rm -rf --one-file-system "${dir:?}/$suite.new"
	run unshare --mount debootstrap --variant=minbase "$suite" "$dir/$suite.new" "$mirror" || return
	mv "$dir/$suite.new" "$dir/$suite"
}

# furnish puts what comes from this machine into the folder: the committed tree and apt's proxy.
furnish() {
	local root=$1
	cp /etc/resolv.conf /etc/hosts "$root/etc/"
	# A mirror that is some weeks behind will do for sid.
	echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/99mirror"
	[[ -z ${http_proxy:-} ]] || echo "Acquire::http::Proxy \"$http_proxy\";" >"$root/etc/apt/apt.conf.d/99proxy"
	rm -rf --one-file-system "${root:?}/root/slurm-vgpu"
	git clone -q --no-hardlinks "$top" "$root/root/slurm-vgpu"
}

test_suite() {
	local suite=$1 root=$dir/$1
	bootstrap "$suite" && furnish "$root" || return
	# The tests are words of their own.
	# shellcheck disable=SC2086
	run unshare --mount --propagation private "$here/enter.sh" "$root" "$dir/go-build" "$("$go" env GOROOT)" "$("$go" env GOMODCACHE)" \
		bash test/releases/inside.sh $tests
}

(cd "$top" && "$go" mod download && "$go" mod download -modfile=tools/nfpm.mod && cd test/dashboard && "$go" mod download)
mkdir -p "$dir/go-build"
echo 'module releases' >"$dir/go.mod" # or `go vet ./...` of this tree finds the releases' own packages
say "commit $(git -C "$top" rev-parse --short HEAD), tests: $tests"
[[ -z $(git -C "$top" status --porcelain) ]] || say "what is not committed is not tested"
failed=
for suite in "${suites[@]}"; do
	log=$dir/logs/$suite.log
	say "$suite, log in $log"
	test_suite "$suite" >"$log" 2>&1 || failed="$failed $suite"
done
"$here/table.sh" "$tests" "$dir/logs" "${suites[@]}"
[[ -z $failed ]] || die "failed:$failed"
