#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# table.sh "TESTS" LOGS SUITE…: what the logs say, a line for each suite: passed/failed/skipped, or - for
# what did not come to an end.
set -euo pipefail
tests=$1 logs=$2
shift 2

# found PATTERN LOG: what the first line that matches says, shortened by sed.
found() {
	local text
	text=$(sed -n "$1" "$2" | sed -n 1p)
	printf '  %-12s' "${text:--}"
}

printf '%-12s' suite
for column in slurm $tests; do printf '  %-12s' "$column"; done
echo
for suite; do
	printf '%-12s' "$suite"
	found 's/^slurm[a-z-]* \([0-9.]*\)$/\1/p' "$logs/$suite.log"
	for test in $tests; do
		found "s|^<== $test: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped.*|\1/\2/\3|p" "$logs/$suite.log"
	done
	echo
done
