#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Whatever LD_PRELOAD puts in front of the library, the library comes first; and a program that is
# started again for it is the same program.
#   scope.sh LIBRARY
# VGPU_TEST_SIM is the folder of the simulated libraries.
set -u
library=$1
sim=$VGPU_TEST_SIM
libc=$(ldd /bin/sh | awk '$1 == "libc.so.6" {print $3}')
passed=0
failed=0

verdict() {
	if [ "$2" = "$3" ]; then
		passed=$((passed + 1))
		echo "PASS $1"
	else
		failed=$((failed + 1))
		echo "FAIL $1: got '$3', want '$2'"
	fi
}

# Outside of a step the library permits nothing, so whoever is permitted went around it.
refused='vgpu-fill: cuInit: CUDA_ERROR_NOT_PERMITTED (800)'
fill() { env "$@" "$sim/vgpu-fill" --upto 64 2>&1 | tail -n 1; }
verdict the_c_library_in_front "$refused" "$(fill LD_PRELOAD="$libc:$library")"
verdict the_driver_in_front "$refused" "$(fill LD_PRELOAD="$sim/libcuda.so.1:$library")"
verdict nvml_in_front "$refused" "$(fill LD_PRELOAD="$sim/libnvidia-ml.so.1 $library")"
verdict both_in_front "$refused" "$(fill LD_PRELOAD="$libc:$sim/libcuda.so.1:$library")"
verdict nothing_in_front "$refused" "$(fill LD_PRELOAD="$library:$libc")"
linker=$(readelf -lW "$sim/vgpu-fill" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
verdict the_linker_as_a_program "$refused" "$("$linker" --preload "$libc $library" "$sim/vgpu-fill" --upto 64 2>&1 | tail -n 1)"
# Of any length: the linker's own are read where the kernel has them. This program says whether it is given the wrappers.
tests=$sim/../test-interposer
many=$(head -c 100000 /dev/zero | tr '\0' x)
long() {
	set -- look
	while [ $# -lt 15 ]; do set -- "$@" "$many"; done
	LD_PRELOAD="$libc:$library" "$linker" "$tests/route/loaded" "$@" 2>&1
	echo $?
}
verdict arguments_of_any_length 0 "$(long)"
# Of several LD_PRELOAD the dynamic linker takes the last.
started=$tests/helpers/started
verdict twice_in_the_environment "$refused" "$("$started" twice "$library" "$libc:$library" "$sim/vgpu-fill" --upto 64 2>&1 | tail -n 1)"
verdict twice_the_other_way_round "$refused" "$("$started" twice "$libc" "$libc $library" "$sim/vgpu-fill" --upto 64 2>&1 | tail -n 1)"
verdict thousands_of_times_in_the_environment "$refused" "$("$started" many "$libc:$library" "$sim/vgpu-fill" --upto 64 2>&1 | tail -n 1)"
# By a path that leads there only from here, or only now.
links=$(mktemp -d)
ln -s "$library" "$links/link.so"
verdict by_a_link "$refused" "$(fill LD_PRELOAD="$libc:$links/link.so")"
verdict by_a_path_from_here "$refused" "$(cd "$links" && fill LD_PRELOAD="$libc:./link.so")"
rm -rf "$links"

# Who is not first and cannot begin again does not run.
ends() {
	said=$("$@" 2>&1)
	status=$?
	case $said in
	"vgpu: not started: "*) echo "$status $(echo "$said" | wc -l)" ;;
	*) echo "$said" ;;
	esac
}
verdict a_full_environment_ends "127 1" "$(ends "$started" full "$libc:$library" "$sim/vgpu-fill" --upto 64)"
verdict a_full_environment_behind_is_fine "$refused" "$("$started" full "$library:$libc" "$sim/vgpu-fill" --upto 64 2>&1 | tail -n 1)"

again() { LD_PRELOAD="$libc:$library" "$@" 2>&1; }
verdict arguments_stay "[-c] [a] [b  c] [] [*]" "$(again perl -e 'print "[-c]", map { " [$_]" } @ARGV' a 'b  c' '' '*')"
verdict the_environment_stays "kept" "$(KEPT=kept again sh -c 'echo "$KEPT"')"
# Started again, the shell still has the name of its file.
verdict the_name_stays "$(basename "$(readlink -f /bin/sh)")" "$(basename "$(again "$(readlink -f /bin/sh)" -c 'read -r name </proc/$$/comm; echo "$name"')")"
verdict the_exit_status_stays 7 "$(again sh -c 'exit 7'; echo $?)"
script=$(mktemp)
printf '#!/bin/sh\necho "$0 $1"\n' >"$script"
chmod +x "$script"
verdict a_script_stays_one "$script x" "$(again "$script" x)"
rm -f "$script"

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
