#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Until the C library's dlsym is known, a lookup calls nothing that a program or a preload may have wrapped: their wrappers
# look up the real function by this very lookup.
#   lookups.sh LIBRARY
set -u
found=$(objdump -d --no-show-raw-insn "$1" | awk '
	/^[0-9a-f]+ <.*>:$/ { name = $2; gsub(/[<>:]/, "", name); next }
	/\t(call|jmp|bl|b)[a-z]* / && match($0, /<[^>+]*>$/) {
		target = substr($0, RSTART + 1, RLENGTH - 2)
		if (target != name) calls[name] = calls[name] " " target
		next
	}
	/\tcall[a-z]* +\*/ || /\tblr\t/ { pointers[name] = 1 }
	END {
		if (!("vgpu_libc" in calls)) print "vgpu_libc calls nothing"
		queue[1] = "vgpu_libc"; seen["vgpu_libc"] = 1; last = 1
		for (i = 1; i <= last; i++) {
			name = queue[i]
			if (name ~ /@plt/) { print name; continue }
			if (name in pointers) print name, "calls through a pointer"
			n = split(calls[name], targets, " ")
			for (t = 1; t <= n; t++) if (!(targets[t] in seen)) { seen[targets[t]] = 1; queue[++last] = targets[t] }
		}
		# Of a name that is none of ours, no more than the two lookups of the C library.
		if (calls["vgpu_route_dlsym"] calls["vgpu_route_dlvsym"] ~ /@plt/) print "a route calls a function of the C library"
	}')
if [ -z "$found" ]; then
	echo "PASS lookups_call_nothing_that_can_be_wrapped"
else
	echo "FAIL lookups_call_nothing_that_can_be_wrapped: $found"
	exit 1
fi
