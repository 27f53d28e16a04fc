#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# What works behind the guards over the driver's libraries, and that it is limited: a table of programs, with the preload beside the
# guards, without it, and as in a container. As root, without Slurm, in a mount namespace of its own:
#
#   test/gpu/guard.sh --build build
#
# build has the library and the guards. Programs that are not there are left out: nvcc's, PyTorch's, JAX's, CuPy's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=build
while (($#)); do
	case $1 in
	--build) build=$2; shift 2 ;;
	--inside) inside=1; shift ;;
	*) echo "usage: guard.sh [--build FOLDER]" >&2; exit 2 ;;
	esac
done
build=$(cd "$build" && pwd)
if [[ -z ${inside:-} ]]; then
	exec unshare --mount --propagation private "$0" --build "$build" --inside
fi

self=/run/slurm-vgpu/self
limit_mib=3000
python=${PYTHON:-python3}
work=$(mktemp -d)
chmod 0755 "$work"
trap 'umount -Rl /run 2>/dev/null || true; rm -rf "$work"' EXIT
cc -std=gnu11 -O2 -D_GNU_SOURCE -I"$here" -I"$here/../../interposer" "$here/mkstep.c" "$here/boards.c" -o "$work/mkstep"
cc -std=gnu11 -O2 -D_GNU_SOURCE -I"$here/../../interposer" "$here/../guard/ways.c" -o "$work/ways" -ldl
cc -std=gnu11 -O2 -D_GNU_SOURCE -DLINKED -I"$here/../../interposer" "$here/../guard/ways.c" -o "$work/linked" \
	-Wl,--as-needed -Wl,--allow-shlib-undefined "$build/libcuda-guard.so" -ldl
if command -v nvcc >/dev/null; then
	nvcc -o "$work/static-runtime" "$here/guard/runtime.cu" && nvcc -cudart shared -o "$work/shared-runtime" "$here/guard/runtime.cu"
fi
uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | head -1)
folder=$("$work/mkstep" --dir "$work" --gpu "$uuid" --mem $limit_mib --device-mem 200000 --job 7 --cores 50)

driver() { readlink -f "$(ldconfig -p | awk -v name="$1" '$1 == name && /x86-64|AArch64/ {print $NF; exit}')"; }
cuda=$(driver libcuda.so.1) nvml=$(driver libnvidia-ml.so.1)
mount -t tmpfs -o mode=0755 run /run
mkdir -p $self
mount --bind "$folder" $self
behind() {
	touch "$self/$2"
	mount --bind "$1" "$self/$2"
}
behind "$build/libslurm-vgpu.so" libslurm-vgpu.so
behind "$cuda" libcuda-slurm-vgpu.so
behind "$nvml" libnvidia-ml-slurm-vgpu.so
mount --bind "$build/libcuda-guard.so" "$cuda"
mount --bind "$build/libnvidia-ml-guard.so" "$nvml"
echo "driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1), guards over $cuda and $nvml, limit $limit_mib MiB"

failed=0
# try WHAT PATTERN COMMAND…: met when the last line has the pattern
try() {
	local what=$1 pattern=$2 said verdict=met
	shift 2
	said=$(timeout 120 "$@" 2>/dev/null | tail -n 1) || true
	[[ $said =~ $pattern ]] || { verdict=MISSED failed=1; }
	printf '%-14s  %-44s  %-6s  %s\n' "$how" "$what" "$verdict" "$said"
}
frameworks() {
	try "PyTorch" 'out of memory at 2[0-9]{3} MiB' "$python" "$here/guard/programs.py" torch
	try "torch.compile" 'compiled' env TORCHINDUCTOR_CACHE_DIR="$work/$how" TRITON_CACHE_DIR="$work/$how" "$python" "$here/guard/programs.py" compile
	try "CUPTI, by PyTorch's profiler" 'kernels traced' "$python" "$here/guard/programs.py" profile
	try "JAX" 'summed' "$python" "$here/guard/programs.py" jax
	try "CuPy" "of 3145728000 bytes" "$python" "$here/guard/programs.py" cupy
	try "NCCL" 'reduced' "$python" "$here/guard/programs.py" nccl
}
all() {
	try "nvidia-smi" "^$limit_mib MiB" nvidia-smi --query-gpu=memory.total,memory.used --format=csv,noheader
	try "linked with the guard, --as-needed" '^2[0-9]{3} MiB' "$work/linked" linked
	for way in dlopen deepbind; do
		try "$way" '^2[0-9]{3} MiB' "$work/ways" $way
	done
	try "the driver by its path" '^2[0-9]{3} MiB' "$work/ways" path "$cuda"
	try "dlmopen" '^(2[0-9]{3} MiB|error|not loaded)' "$work/ways" new-namespace
	for program in static-runtime shared-runtime; do
		[[ ! -x $work/$program ]] || try "nvcc, $program" "of $limit_mib MiB" "$work/$program"
	done
	frameworks
}
how="guard, preload"
export LD_PRELOAD=$self/libslurm-vgpu.so
all
how="guard alone"
unset LD_PRELOAD
all
# As in a container: another user, in a user namespace where nothing of /run is left.
how="user namespace"
dev=/dev/slurm-vgpu
mkdir -p $dev
mount --rbind $self $dev
find "$work" -user 0 \( -name ledger -o -name claims \) -exec chown 12345:12345 {} +
contained=(setpriv --reuid 12345 --regid 12345 --clear-groups unshare --user --map-root-user --mount
	sh -c 'mount -t tmpfs none /run && exec "$@"' sh)
try "nvidia-smi" "^$limit_mib MiB" "${contained[@]}" nvidia-smi --query-gpu=memory.total,memory.used --format=csv,noheader
for way in dlopen deepbind; do
	try "$way" '^2[0-9]{3} MiB' "${contained[@]}" "$work/ways" $way
done
try "PyTorch" 'out of memory at 2[0-9]{3} MiB' "${contained[@]}" env HOME="$work" "$python" "$here/guard/programs.py" torch
umount -R $dev
try "without /dev/slurm-vgpu" '^not loaded: libslurm-vgpu.so' "${contained[@]}" "$work/ways" dlopen
rmdir $dev 2>/dev/null || true
how="no folder"
umount $self/libslurm-vgpu.so
rm $self/libslurm-vgpu.so
try "dlopen" '^not loaded: libslurm-vgpu.so' "$work/ways" dlopen
exit $failed
