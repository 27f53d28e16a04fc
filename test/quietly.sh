#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# quietly.sh WHAT COMMAND…: runs a command without its output, says every few seconds that it goes
# on, and shows what it said if it does not succeed.
set -u
what=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
start=$SECONDS
exec 3< <("$@" >"$log" 2>&1; echo $?)
code=1
until read -r -t 3 -u 3 code; do
	(($? > 128)) || break # the end of the output, not of the time
	echo "$what … $((SECONDS - start)) s"
done
if [[ $code != 0 ]]; then
	tail -n 40 "$log" >&2
	echo "$what: exit status $code" >&2
fi
exit "$code"
