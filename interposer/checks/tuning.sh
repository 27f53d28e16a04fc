#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Each number that tunes the library stands once in tuning.h, with its unit at the end of its name, what it is, where it was
# measured and what breaks if it is wrong.
#   tuning.sh [LIBRARY]
set -u
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1
status=0
report() {
	if [ -z "$2" ]; then
		echo "PASS $1"
	else
		printf 'FAIL %s:\n%s\n' "$1" "$2"
		status=1
	fi
}
# What the driver and the shared pages fix is in api. A comment is one that begins or goes on at the start of a line.
others=$(find . -mindepth 2 -name '*.[chS]' ! -path './api/*' | sort)
report numbers_of_time_and_size_are_in_tuning_h "$(grep -nE '^#[[:space:]]*define[[:space:]]+[A-Za-z0-9_]+_(NS|US|MS|S|BYTES|MIB|BITS|TRIES|SPINS|PERCENT)[[:space:]]+\(?[0-9]' $others)"
# Below that are counts, percents and buffers; a million and 10^9 are factors between units.
report no_number_of_time_or_size_is_written_inline "$(awk '
	FNR == 1 { in_comment = 0 }
	{
		text = $0
		if (text ~ /^[ \t]*\/\*/) in_comment = 1
		was = in_comment
		if (text ~ /\*\//) in_comment = 0
		if (was || text ~ /^#[ \t]*define/) next
		gsub(/\/\*.*/, "", text); gsub(/"[^"]*"/, "", text); gsub(/0x[0-9a-fA-F]+/, "", text)
		rest = text
		while (match(rest, /[^A-Za-z0-9_.][0-9][0-9]+(u|l|ul|ll|ull)?([^0-9A-Za-z_.]|$)/)) {
			number = substr(rest, RSTART + 1, RLENGTH - 1) + 0
			if (number > 10000 && number != 1000000 && number != 1000000000) print FILENAME ":" FNR ": " $0
			rest = substr(rest, RSTART + RLENGTH - 1)
		}
		if (text ~ /[0-9](u|l|ul|ll|ull)? *<< *[12]0([^0-9]|$)/ || text ~ /1024(u|l|ul|ll|ull)? *\* *1024/) print FILENAME ":" FNR ": " $0
	}' $others)"
report each_number_says_its_unit_and_where_it_is_from_and_what_breaks "$(awk '
	/^\/\*/ { comment = "" }
	{ if ($0 ~ /^(\/\*| \*)/) comment = comment $0; else if ($0 == "") comment = "" }
	/^#define VGPU_TUNING_H/ { next }
	/^#define/ {
		if ($2 !~ /^VGPU_[A-Z_]+_(NS|US|BYTES|BITS|[A-Z]+S)$/) print $2 ": no unit"
		if (comment !~ /From:/ || comment !~ /Wrong/) print $2 ": where is it from, what breaks?"
	}' tuning.h
	for name in $(sed -n 's/^#define \(VGPU_[A-Z_]*\) .*/\1/p' tuning.h); do
		grep -qw "$name" $others || echo "$name: used nowhere"
	done)"
exit $status
