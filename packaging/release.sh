#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# release.sh VERSION [--dry-run]: makes what a release consists of in build/release, and the tag, which it does not push. TESTED names the targets
# of make whose tests have passed on this commit; they stand in the tag and in the notes. With --dry-run there is no tag.
set -euo pipefail
shopt -s inherit_errexit
version=${1:?usage: release.sh VERSION [--dry-run]}
dry=${2:-}
cd "$(dirname "$0")/.."
tag=v$version out=build/release
fail() {
	echo "release: $*" >&2
	exit 1
}

[[ $dry == "" || $dry == --dry-run ]] || fail "$dry: want --dry-run, or nothing"
[[ $version =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] || fail "$version is no version: want three numbers, as 0.1.0"
[[ $(<VERSION) == "$version" ]] || fail "the file VERSION says $(<VERSION), not $version"
dirty=$(git status --porcelain) # in a condition it could fail, and nothing would look dirty
[[ $dirty == "" ]] || fail "not everything is committed:"$'\n'"$dirty"
! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || fail "there is a tag $tag"
heading=$(grep -m 1 '^## ' CHANGELOG.md) || fail "CHANGELOG.md has no section"
[[ $heading =~ ^"## $version ("[0-9]{4}-[0-9]{2}-[0-9]{2}")"$ ]] || fail "CHANGELOG.md begins with \"$heading\": want \"## $version ($(date +%F))\""
[[ ${TESTED:-} != "" ]] || fail 'name the tests that have passed on this commit, as TESTED="test test-releases test-machine"'
for target in $TESTED; do
	grep -q "^$target:" Makefile test/*/*.mk || fail "TESTED: there is no target $target"
done

# Builds, looks into the packages, and builds them once more elsewhere: the same bytes.
"${MAKE:-make}" --no-print-directory test-packages
said=$(build/vgpuctl --version)
[[ $said == "vgpuctl $version" ]] || fail "build/vgpuctl says that it is $said"

rm -rf "$out"
mkdir -p "$out"
cp build/packages/slurm-vgpu*"$version"-*.{deb,rpm} "$out/"
git archive --prefix="slurm-vgpu-$version/" HEAD | gzip -9n >"$out/slurm-vgpu-$version.tar.gz"
{
	printf 'slurm-vgpu %s\n\n' "$version"
	awk '/^## / {n++; next} n == 1' CHANGELOG.md | sed -e '/./,$!d'
	printf '\nTested on commit %s: make %s, make test-packages.\n' "$(git rev-parse HEAD)" "${TESTED// /, make }"
} >"$out/NOTES.md"
(cd "$out" && sha256sum -- * >SHA256SUMS)
cat "$out/SHA256SUMS"
if [[ $dry != "" ]]; then
	echo "release: $out is made; there is no tag (--dry-run)"
	exit
fi
git tag --annotate --cleanup=verbatim --file="$out/NOTES.md" "$tag"
echo "release: $out is made, and the tag $tag, which is not pushed: git push origin $tag"
