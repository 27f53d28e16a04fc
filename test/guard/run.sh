#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Ways to a driver that stands behind its guards, in a mount namespace as a step has it:
#   run.sh BUILD
# Needs root, or a kernel that lets everybody have user namespaces.
set -euo pipefail
build=$(cd "${1:?usage: run.sh BUILD}" && pwd)
if [[ ${2:-} != inside ]]; then
	((EUID == 0)) || exec unshare --user --map-root-user --mount "$0" "$build" inside
	exec unshare --mount --propagation private "$0" "$build" inside
fi

test=$build/test-guard
self=/run/slurm-vgpu/self
limit_mib=3000
mount -t tmpfs -o mode=0755 run /run
mkdir -p $self /run/driver /run/state /run/step
cp "$build"/sim/{libcuda.so.1,libnvidia-ml.so.1,libnvidia-opencl.so.1,nvidia-smi} /run/driver/
export SIMGPU_DIR=/run/state LD_LIBRARY_PATH=/run/driver
"$build/sim/simgpu-init" /run/state devices=1 device0.mem_mib=20000 >/dev/null
uuid=$("$build/sim/nvidia-smi" --query-gpu=uuid --format=csv,noheader)
folder=$("$test/mkstep" --dir /run/step --gpu "$uuid" --mem $limit_mib --device-mem 20000 --job 7)

# guard_with FILE…: the step's folder with these, and the guards over the driver.
mount --bind "$folder" $self
behind() {
	touch "$self/$2"
	mount --bind "$1" "$self/$2"
}
behind "$test/libslurm-vgpu.so" libslurm-vgpu.so
behind /run/driver/libcuda.so.1 libcuda-slurm-vgpu.so
behind /run/driver/libnvidia-ml.so.1 libnvidia-ml-slurm-vgpu.so
mount --bind "$build/libcuda-guard.so" /run/driver/libcuda.so.1
mount --bind "$build/libnvidia-ml-guard.so" /run/driver/libnvidia-ml.so.1

passed=0 failed=0
# verdict NAME WANTED GOT
verdict() {
	if [[ $3 == "$2" ]]; then
		passed=$((passed + 1))
		echo "PASS $1"
	else
		failed=$((failed + 1))
		echo "FAIL $1: got '$3', want '$2'"
	fi
}
ways() { "$test/ways" "$@" 2>/dev/null || echo "ended with $?"; }
# What a program that is linked with the driver gets, without any guard, is the limit for all others.
limited=$(LD_PRELOAD=$self/libslurm-vgpu.so "$test/linked" linked 2>/dev/null)
[[ $limited =~ ^2[0-9]00\ MiB$ ]] || { echo "FAIL a_preloaded_program_is_limited: '$limited'"; exit 1; }

verdict a_linked_program_is_limited "$limited" "$("$test/linked" linked 2>/dev/null)"
verdict what_is_loaded_later_is_limited "$limited" "$(ways dlopen)"
verdict what_binds_deeply_is_limited "$limited" "$(ways deepbind)"
verdict the_driver_by_its_path_is_limited "$limited" "$(ways path /run/driver/libcuda.so.1)"
verdict the_driver_behind_is_limited_beside_a_preload "$limited" \
	"$(LD_PRELOAD=$self/libslurm-vgpu.so ways path $self/libcuda-slurm-vgpu.so)"
verdict a_preload_beside_the_guard_changes_nothing "$limited" "$(LD_PRELOAD=$self/libslurm-vgpu.so ways dlopen)"
verdict the_driver_in_front_is_limited "$limited" "$(LD_PRELOAD=/run/driver/libcuda.so.1 "$test/linked" linked 2>/dev/null)"
verdict the_c_library_in_front_is_limited "$limited" "$(LD_PRELOAD=libc.so.6 "$test/linked" linked 2>/dev/null)"
# It gets a C library of its own for what it loads, in which no library can be found.
verdict a_static_program_has_no_cuda "error 500" "$("$test/ways-static" dlopen 2>/dev/null)"
verdict a_second_handle_is_the_same "the same" "$(ways same)"
verdict a_program_is_not_begun_again "once" "$(LD_PRELOAD='' sh -c 'echo once; exec "$0" dlopen >/dev/null 2>&1' "$test/ways")"
verdict what_only_the_driver_has_is_found found "$(ways ask cuSimOutside)"
verdict what_this_driver_has_not_is_an_error 500 "$(ways call cuArrayGetPlane)"
verdict what_nobody_has_is_not_found "no such name" "$(ways ask cuNobodyHasThis)"
verdict a_smi_sees_the_slice "$limit_mib MiB" "$(/run/driver/nvidia-smi --query-gpu=memory.total --format=csv,noheader)"
# A linker that asks only for libraries of which it finds a name keeps the guard.
verdict the_guard_has_the_drivers_names yes "$(readelf -d "$test/linked" | grep -q 'NEEDED.*libcuda.so.1' && echo yes)"
own=$(ways new-namespace)
verdict a_new_namespace_has_no_memory_of_its_own yes "$([[ $own == "$limited" || $own == error* ]] && echo yes || echo "$own")"

# What a guard costs a call is for people to read: docs/benchmarks.md.
echo "a call into the driver behind its guard: $(ways time $self/libcuda-slurm-vgpu.so), through it: $(ways time /run/driver/libcuda.so.1)"

# Another way to the GPU, closed.
opencl() { "$test/ways" find /run/driver/libnvidia-opencl.so.1 clIcdGetPlatformIDsKHR 2>/run/told; }
verdict opencl_is_there_while_it_is_open found "$(opencl)"
mount --bind "$build/libslurm-vgpu-closed.so" /run/driver/libnvidia-opencl.so.1
verdict nothing_of_opencl_is_found_when_it_is_closed "no such name" "$(opencl)"
verdict who_looks_for_what_is_closed_is_told 1 "$(grep -c 'closed in a slice' /run/told)"
verdict what_is_closed_disturbs_nobody "$limited" "$(LD_PRELOAD=/run/driver/libnvidia-opencl.so.1 "$test/linked" linked 2>/dev/null)"
verdict nor_a_program_that_closed_its_errors "no such name" "$("$test/ways" find /run/driver/libnvidia-opencl.so.1 clIcdGetPlatformIDsKHR 2>&-)"

# What a program's driver schedules is written down however the program came to it. Of a program in a namespace of its own
# the library is another one, with a place of its own.
groups=/run/step/pages/7/groups
named() {
	local count=0 more=0 at here
	"$test/mkstep" --dir /run/step --gpu "$uuid" --mem $limit_mib --device-mem 20000 --job 7 >/dev/null
	"$@" >/dev/null 2>&1 || true
	for at in 52 3156; do # of the places that are taken in turn by who comes after who has ended
		read -r -a here < <(od -An -tu4 -j$at -N8 $groups)
		count=$((count + here[0])) more=$((more + here[1]))
	done
	echo "$count groups, $more more"
}
coproc control { exec "$build/sim/simgpu-control" /run/state 2>/dev/null; }
if read -r -t 10 -u "${control[0]}" word && [[ $word == ready ]]; then
	one="1 groups, 0 more"
	verdict the_groups_of_a_preloaded_program_are_named "$one" "$(LD_PRELOAD=$self/libslurm-vgpu.so named "$test/linked" linked)"
	verdict the_groups_of_a_linked_program_are_named "$one" "$(named "$test/linked" linked)"
	verdict the_groups_of_what_is_loaded_later_are_named "$one" "$(named "$test/ways" dlopen)"
	verdict the_groups_of_what_binds_deeply_are_named "$one" "$(named "$test/ways" deepbind)"
	verdict the_groups_of_the_driver_by_its_path_are_named "$one" "$(named "$test/ways" path /run/driver/libcuda.so.1)"
	verdict the_groups_of_the_driver_behind_are_named_beside_a_preload "$one" \
		"$(LD_PRELOAD=$self/libslurm-vgpu.so named "$test/ways" path $self/libcuda-slurm-vgpu.so)"
	verdict the_groups_of_a_new_namespace_are_named "$one" "$(named "$test/ways" new-namespace)"
	kill "$control_PID"
	wait "$control_PID" || true
else
	echo "no FUSE here: the groups of programs are not looked at"
fi

umount $self/libslurm-vgpu.so
rm $self/libslurm-vgpu.so
verdict without_the_folder_nothing_is_loaded "not loaded: libslurm-vgpu.so: cannot open shared object file: No such file or directory" "$(ways dlopen)"
echo "$passed passed, $failed failed"
((failed == 0))
