#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# build.sh BUILD OUT: makes deb and rpm of what BUILD holds, in OUT, and takes older ones away there. Two packages each: slurm-vgpu, and the plugin for the
# Slurm whose headers it was built with. The same tree gives the same bytes: times are the last commit's, or
# SOURCE_DATE_EPOCH.
#
# From the environment: SLURM_PLUGINDIR (of the debs), RPM_PLUGINDIR (/usr/lib64/slurm), SLURM_INCLUDE (slurm/slurm_version.h),
# RELEASE (1), FORMATS ("deb rpm"), NFPM (the program).
set -euo pipefail
shopt -s inherit_errexit
build=${1:?usage: build.sh BUILD OUT} out=${2:?usage: build.sh BUILD OUT}
top=$(cd "$(dirname "$0")/../.." && pwd)
cd "$top"
VERSION=$(tr -d '\n' <VERSION)
RELEASE=${RELEASE:-1}
FORMATS=${FORMATS:-deb rpm}
NFPM=${NFPM:-${GO:-go} tool -modfile=tools/nfpm.mod nfpm}
: "${SLURM_PLUGINDIR:?}"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
MAINTAINER="The slurm-vgpu authors <slurm-vgpu@users.noreply.github.com>"
export MAINTAINER VERSION RELEASE SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C

case $(uname -m) in
x86_64) deb_arch=amd64 rpm_arch=x86_64 ;;
aarch64) deb_arch=arm64 rpm_arch=aarch64 ;;
*) echo "packages: no packages for $(uname -m)" >&2; exit 1 ;;
esac

# As slurm_version.h writes it: 0x160508 is 22.05.8. The next release may come two months later.
number=$(sed -n 's/^#define SLURM_VERSION_NUMBER 0x//p' "${SLURM_INCLUDE:-/usr/include}/slurm/slurm_version.h")
[[ $number =~ ^[0-9a-f]{6}$ ]] || { echo "packages: no Slurm version in slurm_version.h" >&2; exit 1; }
SLURM=$(printf '%d.%02d' "0x${number:0:2}" "0x${number:2:2}")
SLURM_NEXT=$(printf '%d.%02d' "0x${number:0:2}" $((0x${number:2:2} + 1)))
export SLURM SLURM_NEXT

# glibc FILE…: the newest version of the C library that one of them asks for. The interposer defines names of newer ones.
glibc() {
	objdump -T "$@" | grep -F '*UND*' | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -uV | tail -1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# stage FORMAT PLUGINDIR: everything installed, in $work/FORMAT.
stage() {
	local all=$work/$1
	make --no-print-directory -s install BUILD="$build" DESTDIR="$all" SLURM_PLUGINDIR="$2" >/dev/null
	strip --strip-unneeded "$all$2"/spank_vgpu*.so "$all"/usr/lib/slurm-vgpu/*.so
	strip --strip-all "$all"/usr/lib/slurm-vgpu/vgpu-* "$all"/usr/bin/vgpu* "$all/usr/sbin/vgpu-gres" "$all/usr/sbin/vgpud"
	chmod 0644 "$all$2"/spank_vgpu*.so "$all"/usr/lib/slurm-vgpu/*.so
	rm -r "$all/usr/share/slurm-vgpu/logrotate.d" "$all/usr/share/slurm-vgpu/config.yaml.example" "$all/etc"
	sed -i "s|^#required .*/spank_vgpu.so|#required $2/spank_vgpu.so|" "$all/usr/share/slurm-vgpu/plugstack.d/vgpu.conf"
	gzip -9n "$all"/usr/share/man/man*/*
	# Debian keeps site-functions for the site.
	[[ $1 != deb ]] || mv "$all/usr/share/zsh/site-functions" "$all/usr/share/zsh/vendor-completions"
}

# split FORMAT PLUGINDIR: what belongs to the plugin's package goes to $work/FORMAT-plugin.
split() {
	local all=$work/$1 plugin=$work/$1-plugin path
	for path in "$2/spank_vgpu.so" "$2/spank_vgpu_launch-$VERSION.so" usr/share/slurm-vgpu/plugstack.d usr/share/man/man8/spank_vgpu.so.8.gz; do
		mkdir -p "$plugin/$(dirname "$path")"
		mv "$all/$path" "$plugin/$path"
	done
	find "$all" -depth -type d -empty -delete
}

# document FOLDER PACKAGE: what a package says of itself.
document() {
	local doc=$1/usr/share/doc/$2
	mkdir -p "$doc"
	cp packaging/packages/copyright "$doc/copyright"
	gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
	printf '%s (%s-%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' "$2" "$VERSION" "$RELEASE" \
		"$MAINTAINER" "$(date -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.Debian.gz"
	rm -f "$doc/CHANGELOG.md" "$doc/LICENSE"
}

package() {
	local format=$1 config=$2
	find "$TREE" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	GLIBC=$(find "$TREE" -type f -exec sh -c 'head -c 4 "$1" | grep -q ELF' sh {} \; -print0 | xargs -0 bash -c "$(declare -f glibc); glibc \"\$@\"" bash)
	export TREE GLIBC
	$NFPM package --config "packaging/packages/$config" --packager "$format" --target "$out"
}

mkdir -p "$out"
rm -f "$out"/slurm-vgpu*.deb "$out"/slurm-vgpu*.rpm # of another release or flavour, which the same pattern would install
for format in $FORMATS; do
	case $format in
	deb) plugindir=$SLURM_PLUGINDIR ARCH=$deb_arch ;;
	rpm) plugindir=${RPM_PLUGINDIR:-/usr/lib64/slurm} ARCH=$rpm_arch ;;
	*) echo "packages: no format $format: deb, rpm" >&2; exit 1 ;;
	esac
	# Debian's own packages and those of SchedMD keep plugins in folders of their own.
	case $format:$plugindir in
	deb:*/slurm-wlm) FLAVOUR=wlm SLURM_PACKAGE=slurm-wlm-basic-plugins ;;
	deb:*) FLAVOUR=smd SLURM_PACKAGE=slurm-smd ;;
	rpm:*) FLAVOUR=slurm SLURM_PACKAGE=slurm ;;
	esac
	export ARCH FLAVOUR SLURM_PACKAGE
	stage "$format" "$plugindir"
	split "$format" "$plugindir"
	[[ $format != deb ]] || install -D -m 0644 packaging/packages/lintian-overrides "$work/deb/usr/share/lintian/overrides/slurm-vgpu"
	document "$work/$format" slurm-vgpu
	document "$work/$format-plugin" "slurm-vgpu-plugin-$FLAVOUR$SLURM"
	TREE=$work/$format package "$format" slurm-vgpu.yaml
	TREE=$work/$format-plugin package "$format" plugin.yaml
done
