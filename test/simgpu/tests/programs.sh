#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# nvidia-smi, vgpu-fill, vgpu-busy and simgpu-init as a job finds them: an empty environment, one folder.
set -u

folder=$(mktemp -d)
holder=
trap 'test -z "$holder" || kill "$holder" 2>/dev/null; rm -rf "$folder"' EXIT
cp "$1"/libcuda.so.1 "$1"/libnvidia-ml.so.1 "$1"/nvidia-smi "$1"/vgpu-fill "$1"/vgpu-busy "$1"/simgpu-init "$folder"
passed=0
failed=0

# is NAME WANT GOT
is() {
	if [ "$2" = "$3" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf 'FAIL %s\n  want: %s\n  got:  %s\n' "$1" "$2" "$3"
	fi
}

smi() { env -i timeout 10 "$folder/nvidia-smi" "$@"; }
fill() { env -i timeout 10 "$folder/vgpu-fill" "$@"; }
busy() { env -i timeout 10 "$folder/vgpu-busy" "$@"; }

is "without a configuration there are two H200s" "2" "$(smi -L | grep -c '^GPU [01]: NVIDIA H200 (UUID: GPU-')"

"$folder/simgpu-init" devices=2 mem_mib=1000 context_mib=100 device0.uuid=GPU-00000000-1111-2222-3333-444444444444 \
	'device1.name=NVIDIA Test'
is "queries follow the format" "0, 0, 1000, 0 %
1, 0, 1000, 0 %" "$(smi --query-gpu=index,memory.used,memory.total,utilization.gpu --format=csv,noheader | sed 's/ MiB//g')"
is "the header has units" "uuid, name, memory.free [MiB]
GPU-00000000-1111-2222-3333-444444444444, NVIDIA H200, 1000 MiB" \
	"$(smi -i 0 --query-gpu=uuid,name,memory.free --format=csv)"
is "a field that is not known is refused" 2 "$(smi --query-gpu=wrong --format=csv >/dev/null 2>&1; echo $?)"
is "the table fits its frame" 91 "$(smi | sed 1d | awk '{ print length($0) }' | sort -u)"

is "filling ends in out of memory" "NVIDIA H200: total 1000 MiB, free 900 MiB
CUDA_ERROR_OUT_OF_MEMORY after 896 MiB in steps of 64 MiB (malloc)
0" "$(fill; echo $?)"
for api in async vmm; do
	is "filling with $api" "CUDA_ERROR_OUT_OF_MEMORY 900 MiB" "$(fill --api "$api" --step 4 --quiet | tail -1)"
done
is "filling with managed memory stops at the device's size" "took 1000 MiB" \
	"$(fill --api managed --quiet | tail -1)"
is "filling stops where it is told to" "took 100 MiB" "$(fill --upto 100 --device 1 --quiet | tail -1)"
is "a device that is not there is an error" 1 "$(fill --device 2 >/dev/null 2>&1; echo $?)"
is "a bad option is a usage error" 2 "$(fill --step 0 >/dev/null 2>&1; echo $?)"

env -i "$folder/vgpu-fill" --upto 200 --hold-until "$folder/done" >/dev/null &
holder=$!
tries=0
while [ "$(smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits)" != 300 ] && [ $tries -lt 200 ]; do
	sleep 0.05
	tries=$((tries + 1))
done
is "a process is listed with its memory" \
	"$holder, 300 MiB, GPU-00000000-1111-2222-3333-444444444444, $folder/vgpu-fill" \
	"$(smi --query-compute-apps=pid,used_memory,gpu_uuid,name --format=csv,noheader)"
is "and in the table" 1 "$(smi | grep -c " $holder .*vgpu-fill.* 300MiB ")"
touch "$folder/done"
wait "$holder"
is "holding ends when the file is there" 0 $?
holder=
is "what it held is free again" 0 "$(smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits)"

# How busy and how long is the host's doing as well.
is "keeping it busy" "busy for part of a time: kernels of 500 us" \
	"$(busy --us 500 --for 200 | sed 's/ [1-9][0-9.]* % of [0-9.]* s: [1-9][0-9]* kernels/ part of a time: kernels/')"
: >"$folder/now"
is "keeping it busy until a file is there" "busy for" \
	"$(busy --begin "$folder/now" --until "$folder/now" --device 1 | cut -d ' ' -f 1-2)"
# Words of 8 bytes: 0 is ready, 1 go, 2 stop, 8 done.
word() { od -A n -t u8 -j $(($1 * 8)) -N 8 "$folder/board" | tr -d ' '; }
set_word() { printf '\001' | dd of="$folder/board" bs=1 seek=$(($1 * 8)) conv=notrunc 2>/dev/null; }
truncate -s 1M "$folder/board"
busy --us 500 --for 5000 --board "$folder/board" >"$folder/said" &
for _ in $(seq 500); do
	[ "$(word 0)" = 0 ] || break
	sleep 0.01
done
is "it waits for a board's word" "1 0" "$(word 0) $(word 8)"
set_word 1
for _ in $(seq 500); do
	[ "$(word 8)" = 0 ] || break
	sleep 0.01
done
set_word 2
wait $!
is "it counts on a board, and ends when that says so" "$(sed 's/.*: \([1-9][0-9]*\) kernels.*/\1/' "$folder/said")" "$(word 8)"
is "what is no board is refused" 1 "$(busy --board "$folder/none" >/dev/null 2>&1; echo $?)"
is "it is a usage error to be far ahead" 2 "$(busy --ahead 65 >/dev/null 2>&1; echo $?)"

if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
	chmod 755 "$folder"
	chmod 600 "$folder/simgpu.d/nvidia0"
	is "another user sees only what he may open" "GPU 0: NVIDIA Test" \
		"$(env -i setpriv --reuid 65534 --regid 65534 --clear-groups "$folder/nvidia-smi" -L | sed 's/ (.*//')"
	is "and may use it" "took 64 MiB" "$(env -i setpriv --reuid 65534 --regid 65534 --clear-groups \
		"$folder/vgpu-fill" --upto 64 --quiet | tail -1)"
else
	echo "skipped: another user's view (needs root and setpriv)"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
