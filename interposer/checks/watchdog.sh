#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# What the watchdog's thread can get to calls nothing of the driver's and looks up no names, so that nothing of that
# can keep it waiting: from its function on there is no call through a pointer, and of other libraries only what
# waits for nobody.
#   watchdog.sh LIBRARY
set -u
found=$(objdump -d --no-show-raw-insn "$1" | awk '
	/^[0-9a-f]+ <.*>:$/ { name = $2; gsub(/[<>:]/, "", name); next }
	/\t(call|jmp|bl|b)[a-z]* / && match($0, /<[^>+]*>$/) {
		target = substr($0, RSTART + 1, RLENGTH - 2)
		if (target != name) calls[name] = calls[name] " " target
		next
	}
	/\tcall[a-z]* +\*/ || /\tblr\t/ { pointers[name] = 1 } # a jump is one of a switch
	END {
		queue[1] = "watch"; seen["watch"] = 1; last = 1
		for (i = 1; i <= last; i++) {
			name = queue[i]
			if (name ~ /@plt$/) {
				if (name !~ /^(syscall|clock_gettime|prctl|nanosleep|getpid|open|close|mmap|munmap|memset|memcpy|read|snprintf|strnlen|strspn|__errno_location)@plt$/) print name
				continue
			}
			if (name in pointers) print name, "calls through a pointer"
			if (name ~ /vgpu_real_look_up|dlsym/) print name
			n = split(calls[name], targets, " ")
			for (t = 1; t <= n; t++) if (!(targets[t] in seen)) { seen[targets[t]] = 1; queue[++last] = targets[t] }
		}
		if (last < 10) print "only", last, "functions were found"
	}')
if [ -z "$found" ]; then
	echo "PASS the_watchdog_calls_nothing_of_the_driver"
else
	echo "FAIL the_watchdog_calls_nothing_of_the_driver: $found"
	exit 1
fi
