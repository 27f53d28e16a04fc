#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the interposer's tests and sums up.
#   run.sh FOLDER LIBRARY PROGRAM…    programs below FOLDER, as ROOM/NAME, under LD_PRELOAD where LIBRARY is not empty
# VGPU_TEST_SIM is the folder of the simulated libraries.
set -u
folder=$1
library=$2
shift 2
here=$(dirname "$(readlink -f "$0")")
log=$(mktemp)
own=$(mktemp)
beside=$(mktemp -d)
trap 'rm -rf "$log" "$own" "$beside"' EXIT
# Some cases look at who gets how much of the time. What else the machine does comes after them, where that may be asked for.
first=
[ -n "$(nice -n -15 true 2>&1)" ] || first="nice -n -15"

# What a program says comes on standard input.
take() {
	echo "# $1"
	tee "$own" | grep -v ' passed, '
	grep -q ' passed, ' "$own" || echo "FAIL $1 ended early" | tee -a "$own"
	cat "$own" >>"$log"
}

run_programs() {
	for program; do
		LD_PRELOAD=$library $first timeout 300 "$folder/$program" 2>&1 | take "$program"
	done
}

# These judge no clock but their own, so that they may run side by side; under the sanitizers all do.
is_patient() {
	case $1 in
	memory/* | process/* | route/* | */fuzz_*) [ -n "$library" ] ;;
	*) false ;;
	esac
}
scripts=
[ -z "$library" ] || scripts="$here/route/wrapping.sh $here/route/bystanders.sh $here/route/scope.sh $(ls "$here"/../../interposer/checks/*.sh)"

{
	# What takes longest first.
	for program; do
		! is_patient "$program" || echo "$program"
	done | grep /fuzz_
	printf '%s\n' $scripts
	for program; do
		! is_patient "$program" || echo "$program"
	done | grep -v /fuzz_
} | xargs -P "$(nproc)" -I '{}' sh -c '
	mkdir -p "$1/$(dirname "$4")"
	case $4 in
	*.sh) timeout 300 "$4" "$2" >"$1/$4" 2>&1 ;;
	*) LD_PRELOAD=$2 timeout 300 "$3/$4" >"$1/$4" 2>&1 ;;
	esac
	true' - "$beside" "$library" "$folder" '{}'
for program; do
	if is_patient "$program"; then
		cat "$beside/$program" 2>&1 | take "$program"
	else
		run_programs "$program"
	fi
done
for script in $scripts; do
	echo "# $(basename "$script" .sh)"
	tee -a "$log" <"$beside/$script" | grep -v ' passed, '
	grep -qE '^(PASS|FAIL) ' "$beside/$script" || echo "FAIL $script ended early" | tee -a "$log"
done
passed=$(grep -c '^PASS ' "$log")
failed=$(grep -c '^FAIL ' "$log")
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
