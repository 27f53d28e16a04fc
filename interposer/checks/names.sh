#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# A static function has a name of its own in all of our C, so that a search, a debugger and a picture of who calls whom find
# one place.
#   names.sh [LIBRARY]
set -u
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1
# A definition begins at the start of a line and its parameters are not closed by a semicolon.
found=$(awk '
	FNR == 1 { on = 0 }
	/^static / { text = "" ; on = 1 }
	on {
		text = text " " $0
		if (!match(text, /[;={]/)) next
		on = 0
		if (substr(text, RSTART, 1) != "{") next
		gsub(/__attribute__ *\(\([^)]*\)\)/, "", text)
		if (match(text, /[A-Za-z0-9_]+\(/)) {
			name = substr(text, RSTART, RLENGTH - 1)
			where[name] = where[name] " " FILENAME
			places[name]++
		}
	}
	END { for (name in places) if (places[name] > 1) print name ":" where[name] }' \
	interposer/*/*.[ch] spank/*.[ch] guard/*.[ch] 2>/dev/null | sort)
if [ -z "$found" ]; then
	echo "PASS a_static_function_has_a_name_of_its_own"
else
	printf 'FAIL a_static_function_has_a_name_of_its_own:\n%s\n' "$found"
	exit 1
fi
