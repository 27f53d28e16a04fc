#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# test.sh BUILD PACKAGES [--install]: what is in the packages, whether a second build in another folder gives the same bytes,
# lintian, and an rpm database of its own. With --install, for a machine that is thrown away: installs the debs here, runs the
# demo's main job with the installed files, and removes them again.
set -euo pipefail
shopt -s inherit_errexit
build=$(cd "${1:?usage: test.sh BUILD PACKAGES [--install]}" && pwd)
packages=$(cd "${2:?usage: test.sh BUILD PACKAGES [--install]}" && pwd)
install=${3:-}
top=$(cd "$(dirname "$0")/../.." && pwd)
cd "$top"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
pass() { echo "PASS $*"; }
fail() {
	echo "FAIL $*"
	failures=$((failures + 1))
}
# check NAME: runs the function of that name; in a condition it would go on behind what fails.
check() {
	local said code
	set +e
	said=$(set -e; "$1" 2>&1)
	code=$?
	set -e
	if ((code == 0)); then pass "$1"; else fail "$1: $said"; fi
}
one() {
	local found
	found=$(compgen -G "$packages/$1") && [[ $(wc -l <<<"$found") == 1 ]] || { echo "test.sh: not one $1 in $packages" >&2; exit 1; }
	echo "$found"
}
main=$(one 'slurm-vgpu_*.deb') plugin=$(one 'slurm-vgpu-plugin-*.deb')
main_rpm=$(one 'slurm-vgpu-[0-9]*.rpm') plugin_rpm=$(one 'slurm-vgpu-plugin-*.rpm')
plugindir=$(dirname "$(dpkg -c "$plugin" | grep -o '/[^ ]*/spank_vgpu.so$')")

# Everything that `make install` puts into place is in one of the two, and nothing else stands beside it.
files_are_those_of_make_install() {
	make --no-print-directory -s install BUILD="$build" DESTDIR="$work/installed" SLURM_PLUGINDIR="$plugindir" >/dev/null
	(cd "$work/installed" && find . -type f) | sed -E -e 's|^\.||' -e '/\/man\/man/s|$|.gz|' \
		-e 's|^/usr/share/slurm-vgpu/logrotate.d|/etc/logrotate.d|' \
		-e 's|^/usr/share/zsh/site-functions|/usr/share/zsh/vendor-completions|' -e 's|^/usr/share/slurm-vgpu/config.yaml.example|/etc/slurm-vgpu/config.yaml|' -e '/\/doc\/slurm-vgpu\/(LICENSE|CHANGELOG.md)$/d' |
		sort >"$work/want"
	{ dpkg -c "$main"; dpkg -c "$plugin"; } | awk '!/^d/ {print substr($6, 2)}' | grep -vE '/doc/[^/]*/(copyright|changelog\.gz|changelog\.Debian\.gz)$|/lintian/overrides/' |
		sort >"$work/got"
	diff -u "$work/want" "$work/got"
}

# What runs as root must not be writable by others, whatever the builder's umask was.
nothing_is_writable_by_others() {
	! { dpkg -c "$main"; dpkg -c "$plugin"; } | awk '$1 !~ /^l/ && (substr($1, 6, 1) == "w" || substr($1, 9, 1) == "w" || $2 != "root/root")' | grep .
}

# Documents that README.md names come along, and who has copied the examples can run them.
the_documents_are_there() {
	local doc=$work/documents/usr/share/doc/slurm-vgpu link
	dpkg -x "$main" "$work/documents"
	[[ -x $doc/examples/check.sh ]] || { echo "examples/check.sh cannot be run"; return 1; }
	for link in $(grep -oE '\]\([^)#:]+\.md' README.md | cut -c3- | sort -u); do
		[[ -e $doc/$link ]] || { echo "README.md names $link"; return 1; }
	done
}

the_plugin_goes_with_its_slurm() {
	local depends package next
	depends=$(dpkg-deb -f "$plugin" Depends)
	package=$(grep -oE 'slurm-[a-z-]+ \(<<' <<<"$depends" | cut -d' ' -f1)
	next=$(grep -oE '<< [0-9.]+' <<<"$depends" | cut -d' ' -f2)
	[[ -n $package && -n $next ]] || { echo "$depends"; return 1; }
	[[ $(dpkg-deb -f "$plugin" Provides) == slurm-spank-vgpu && $(dpkg-deb -f "$plugin" Conflicts) == slurm-spank-vgpu ]]
}

# Where the C library is older dpkg and rpm refuse the package, and no program fails to start.
they_ask_for_the_c_library_of_their_programs() {
	local deb rpm newest
	for deb in "$main" "$plugin"; do
		rm -rf "$work/programs"
		dpkg -x "$deb" "$work/programs"
		newest=$({ find "$work/programs" -type f -exec objdump -T {} + 2>/dev/null || true; } | grep -F '*UND*' | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -uV | tail -n 1)
		[[ -n $newest && $(dpkg-deb -f "$deb" Depends) == *"libc6 (>= $newest)"* ]] || { echo "$deb: $newest: $(dpkg-deb -f "$deb" Depends)"; return 1; }
		rpm=$([[ $deb == "$main" ]] && echo "$main_rpm" || echo "$plugin_rpm")
		! command -v rpm >/dev/null || rpm -qp --requires "$rpm" | grep -xF "libc.so.6(GLIBC_$newest)(64bit)" >/dev/null || { echo "$rpm: not $newest"; return 1; }
	done
}

a_second_build_gives_the_same_bytes() {
	git clone -q . "$work/again" || return
	[[ -z $(git status --porcelain) ]] || { echo "what is not committed cannot be built again"; return 1; }
	mkdir -p "$work/again/build/packages"
	touch "$work/again/build/packages/slurm-vgpu-plugin-smd99.11_0.0.1-1_amd64.deb" # of an earlier build, which must not stay
	(cd "$work/again" && make --no-print-directory build >"$work/log" 2>&1 && make --no-print-directory packages >>"$work/log" 2>&1) || { tail -5 "$work/log"; return 1; }
	local file
	for file in "$packages"/*; do
		cmp "$file" "$work/again/$(realpath --relative-to="$top" "$file")" || return
	done
	diff <(ls "$packages") <(ls "$work/again/build/packages")
}

# A lintian that has a tag no longer calls an override of it an error.
lintian_finds_no_error() {
	! lintian --allow-root --fail-on none --suppress-tags alien-tag --tag-display-limit 0 "$main" "$plugin" 2>/dev/null | grep '^E:'
}

rpm_installs_and_verifies() {
	local root=$work/rpm
	mkdir -p "$root"
	rpm --root "$root" --initdb
	# There is no Slurm and no shell in there: what the packages ask for is read below.
	rpm --root "$root" -i --nodeps --noscripts "$main_rpm" "$plugin_rpm"
	rpm --root "$root" -V --nodeps slurm-vgpu "$(rpm -qp --qf '%{NAME}' "$plugin_rpm")"
	rpm --root "$root" -qc slurm-vgpu | grep -x /etc/slurm-vgpu/config.yaml
	[[ -x $root/usr/sbin/vgpu-gres && -e $root/usr/lib64/slurm/spank_vgpu.so && -e $root/usr/lib64/slurm/spank_vgpu_launch-$(<VERSION).so ]]
	rpm -qp --provides "$plugin_rpm" | grep -x slurm-spank-vgpu
	for file in "$main_rpm" "$plugin_rpm"; do
		# Not -q: all is read, or rpm fails by SIGPIPE.
		rpm -qp --scripts "$file" | grep 'hold slices of this node' >/dev/null || { echo "$file is removed under jobs"; return 1; }
	done
	rpm -qp --requires "$plugin_rpm" | grep -E '^slurm < [0-9]'
}

check files_are_those_of_make_install
check nothing_is_writable_by_others
check the_documents_are_there
check the_plugin_goes_with_its_slurm
check they_ask_for_the_c_library_of_their_programs
check a_second_build_gives_the_same_bytes
if command -v lintian >/dev/null; then check lintian_finds_no_error; else echo "SKIP lintian_finds_no_error: no lintian"; fi
if command -v rpm >/dev/null; then check rpm_installs_and_verifies; else echo "SKIP rpm_installs_and_verifies: no rpm"; fi

# From here on this machine changes.
debs_install() {
	apt-get install -y --no-install-recommends "$main" "$plugin" >"$work/apt" 2>&1 || { tail -5 "$work/apt"; return 1; }
	grep -q 'nothing of it is active yet' "$work/apt" || { echo "the next step is not said"; return 1; }
	dpkg -V slurm-vgpu "$(dpkg-deb -f "$plugin" Package)"
}
nothing_is_enabled() {
	! find /etc/systemd/system -name 'slurm-vgpu*' 2>/dev/null | grep . && ! grep -rqs '^[^#]*spank_vgpu' /etc/slurm
}
# The demo takes its programs from a build folder: here from one that has the installed ones.
the_main_job_runs_from_installed_files() {
	local tree=$work/tree program
	mkdir -p "$tree/build" "$tree/gres"
	cp -r "$build/sim" "$build/vgpu-demo" "$tree/build/"
	for program in /usr/lib/slurm-vgpu/{vgpu-prolog,vgpu-epilog,vgpu-draw,libslurm-vgpu.so,libcuda-guard.so,libnvidia-ml-guard.so,libslurm-vgpu-closed.so} /usr/sbin/{vgpu-gres,vgpud} /usr/bin/{vgpuctl,vgpu-exporter} "$plugindir/spank_vgpu.so" "$plugindir/spank_vgpu_launch-$(<VERSION).so"; do
		ln -s "$program" "$tree/build/" || return
	done
	cp /usr/share/slurm-vgpu/*.lua "$tree/gres/" && cp VERSION "$tree/" || return
	"$tree/build/vgpu-demo" >"$work/demo" 2>&1 || { tail -20 "$work/demo"; return 1; }
}
a_changed_configuration_is_kept() {
	echo 'place: spread' >>/etc/slurm-vgpu/config.yaml
	dpkg --force-confdef -i "$main" >"$work/apt" 2>&1 && grep -qx 'place: spread' /etc/slurm-vgpu/config.yaml || return
	echo 'device_files: closed' >>/etc/slurm-vgpu/config.yaml
	dpkg -r "$(dpkg-deb -f "$plugin" Package)" slurm-vgpu >"$work/apt" 2>&1 && grep -qx 'place: spread' /etc/slurm-vgpu/config.yaml || return
	grep -q 'vgpuctl devices open' "$work/apt" || { echo "nothing is said of device files that stay closed"; return 1; }
	[[ ! -e /usr/bin/vgpuctl ]]
}
# With a state file as a prolog writes it, one slice on a line.
a_removal_under_a_job_is_refused() {
	local both said
	both="$(dpkg-deb -f "$plugin" Package) slurm-vgpu"
	mkdir -p /run/slurm-vgpu
	printf '%s\n' '{"version":2,"boot_id":"b","checksum":"c",' '"gpus":[' '{"device":"GPU-1"}' '],' '"slices":[' '[12,0,0,1],' '[12,0,1,1],' '[7,0,1,1,5]' ']}' >/run/slurm-vgpu/state.json
	apt-get install -y --no-install-recommends --reinstall "$main" "$plugin" >"$work/apt" 2>&1 || { echo "an upgrade is refused: $(tail -5 "$work/apt")"; return 1; }
	for package in $both; do
		said=$(dpkg -r "$package" 2>&1) && { echo "$package is removed"; return 1; }
		grep -q "hold slices of this node's GPUs: 7 12 \$" <<<"$said" || { echo "$said"; return 1; }
		[[ $(dpkg-query -W -f '${Status}' "$package") == "install ok installed" || $(dpkg-query -W -f '${Status}' "$package") == "deinstall ok installed" ]] || { dpkg-query -W "$package"; return 1; }
	done
	touch /run/slurm-vgpu/remove-anyway
	dpkg -r $both >"$work/apt" 2>&1 || { tail -5 "$work/apt"; return 1; }
	[[ ! -e /run/slurm-vgpu/remove-anyway ]] || { echo "the next removal is not asked about jobs"; return 1; }
	rm /run/slurm-vgpu/state.json
	apt-get install -y --no-install-recommends "$main" "$plugin" >"$work/apt" 2>&1
}
# Also of what an administrator has enabled.
a_purge_leaves_nothing() {
	local wants=/etc/systemd/system/timers.target.wants
	mkdir -p "$wants"
	ln -s /usr/lib/systemd/system/slurm-vgpu-vgpud.service /usr/lib/systemd/system/others.timer "$wants"
	dpkg -P slurm-vgpu "$(dpkg-deb -f "$plugin" Package)" >"$work/apt" 2>&1
	[[ -L $wants/others.timer ]] && rm "$wants/others.timer" || { echo "another's timer is gone"; return 1; }
	! find "$wants"/slurm-vgpu-* /etc/slurm-vgpu /usr/lib/slurm-vgpu /usr/share/slurm-vgpu "$plugindir"/spank_vgpu*.so 2>/dev/null | grep .
}
if [[ $install == --install ]]; then
	check debs_install
	check nothing_is_enabled
	check the_main_job_runs_from_installed_files
	check a_removal_under_a_job_is_refused
	check a_changed_configuration_is_kept
	check a_purge_leaves_nothing
fi
((failures == 0))
