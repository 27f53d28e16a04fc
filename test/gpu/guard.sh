#!/usr/bin/env bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# What works behind the guards over the driver's libraries, and that it is limited: a table of programs, with the preload beside the
# guards and without it; what other interfaces than CUDA take, and that they are closed; and what a launch costs. As root, without
# Slurm, in a mount namespace of its own:
#
#   test/gpu/guard.sh --build build [--only programs|tools|other|costs]
#
# build has the library and the guards, and build/gpu/other what test/gpu/other.sh has built. Programs that are not there are left
# out: nvcc's, PyTorch's, JAX's, CuPy's, the toolkit's debugger and profiler.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=build
only=
while (($#)); do
	case $1 in
	--build) build=$2; shift 2 ;;
	--only) only=$2; shift 2 ;;
	--inside) inside=1; shift ;;
	*) echo "usage: guard.sh [--build FOLDER] [--only programs|tools|other|costs]" >&2; exit 2 ;;
	esac
done
build=$(cd "$build" && pwd)
if [[ -z ${inside:-} ]]; then
	exec unshare --mount --propagation private "$0" --build "$build" ${only:+--only "$only"} --inside
fi

self=/run/slurm-vgpu/self
limit_mib=3000
python=${PYTHON:-python3}
work=$(mktemp -d)
chmod 0755 "$work"
failed=0
told=
trap '[[ -z $told ]] || kill $told; umount -Rl /run 2>/dev/null || true; rm -rf "$work"' EXIT
wanted() { [[ -z $only || $only == "$1" ]]; }
cflags="-std=gnu11 -O2 -D_GNU_SOURCE -I$here -I$here/../../interposer"
# shellcheck disable=SC2086
{
	cc $cflags "$here/mkstep.c" -o "$work/mkstep"
	cc $cflags "$here/../guard/ways.c" -o "$work/ways" -ldl
	cc $cflags -static "$here/../guard/ways.c" -o "$work/ways-static" 2>/dev/null || echo "guard.sh: no static C library, and so no static program" >&2
	cc $cflags -DLINKED "$here/../guard/ways.c" -o "$work/linked" \
		-Wl,--as-needed -Wl,--allow-shlib-undefined "$build/libcuda-guard.so" -ldl
	install -m 4755 -o 12345 -g 12345 "$work/ways" "$work/suid"
	if wanted costs; then
		cc $cflags -I"$here/paths" -isystem "${CUDA_INCLUDE:-/usr/local/cuda/include}" "$here/bench/micro.c" "$here/paths/api.c" -o "$work/micro" -ldl
	fi
}
if command -v nvcc >/dev/null; then
	nvcc -o "$work/static-runtime" "$here/guard/runtime.cu" && nvcc -cudart shared -o "$work/shared-runtime" "$here/guard/runtime.cu"
fi
uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | head -1)
# What the GPU says of itself all the while: begun before anything stands over the driver.
nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0 -lms 100 >>"$work/used" &
told=$!

found() { ldconfig -p | awk -v name="$1" 'index($1, name) == 1 && /x86-64|AArch64/ {print $NF}' | xargs -r readlink -f | sort -u; }
cuda=$(found libcuda.so.1 | head -1) nvml=$(found libnvidia-ml.so.1 | head -1)
mount -t tmpfs -o mode=0755 run /run
mkdir -p $self
behind() {
	touch "$self/$2"
	mount --bind "$1" "$self/$2"
}
# step: a step's folder with what the guards need; guards up, guards down: over the driver
step() {
	local folder
	umount -Rl $self 2>/dev/null || true
	folder=$("$work/mkstep" --dir "$work" --gpu "$uuid" --mem $limit_mib --device-mem 200000 --job 1000)
	mount --bind "$folder" $self
	behind "$build/libslurm-vgpu.so" libslurm-vgpu.so
	behind "$cuda" libcuda-slurm-vgpu.so
	behind "$nvml" libnvidia-ml-slurm-vgpu.so
}
guards() {
	case $1 in
	up) mount --bind "$build/libcuda-guard.so" "$cuda"; mount --bind "$build/libnvidia-ml-guard.so" "$nvml" ;;
	down) umount "$cuda"; umount "$nvml" ;;
	esac
}
echo "driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1), guards over $cuda and $nvml, limit $limit_mib MiB"
step

bounded() { timeout 120 "$@"; }
# try WHAT PATTERN COMMAND…: met when the last line has the pattern
try() {
	local what=$1 pattern=$2 said verdict=met
	shift 2
	said=$("$@" 2>"$work/errors" | tail -n 1) || true
	[[ $said =~ $pattern ]] || { verdict=MISSED failed=1; }
	printf '%-14s  %-44s  %-6s  %s\n' "$how" "$what" "$verdict" "$said"
	[[ $verdict == met ]] || tail -n 3 "$work/errors"
}
frameworks() {
	try "PyTorch" 'out of memory at 2[0-9]{3} MiB' bounded "$python" "$here/guard/programs.py" torch
	try "torch.compile" 'compiled' bounded env TORCHINDUCTOR_CACHE_DIR="$work/$how" TRITON_CACHE_DIR="$work/$how" "$python" "$here/guard/programs.py" compile
	try "CUPTI, by PyTorch's profiler" 'kernels traced' bounded "$python" "$here/guard/programs.py" profile
	try "JAX" 'summed' bounded "$python" "$here/guard/programs.py" jax
	try "CuPy" "of 3145728000 bytes" bounded "$python" "$here/guard/programs.py" cupy
	try "NCCL" 'reduced' bounded "$python" "$here/guard/programs.py" nccl
}
programs() {
	try "nvidia-smi" "^$limit_mib MiB" bounded nvidia-smi --query-gpu=memory.total,memory.used --format=csv,noheader
	try "linked with the guard, --as-needed" '^2[0-9]{3} MiB' bounded "$work/linked" linked
	for way in dlopen deepbind; do
		try "$way" '^2[0-9]{3} MiB' bounded "$work/ways" $way
	done
	[[ ! -x $work/ways-static ]] || try "static, dlopen" '^(2[0-9]{3} MiB|error)' bounded "$work/ways-static" dlopen
	try "another user's program, set-user-ID" '^(2[0-9]{3} MiB|error|not loaded)' bounded "$work/suid" dlopen
	try "the driver by its path" '^2[0-9]{3} MiB' bounded "$work/ways" path "$cuda"
	try "dlmopen" '^(2[0-9]{3} MiB|error|not loaded)' bounded "$work/ways" new-namespace
	for program in static-runtime shared-runtime; do
		[[ ! -x $work/$program ]] || try "nvcc, $program" "of $limit_mib MiB" bounded "$work/$program"
	done
	frameworks
}
# The toolkit's own, which look into the driver from outside of the program.
tools() {
	local program=$work/static-runtime

	[[ -x $program ]] || return 0
	! command -v cuda-gdb >/dev/null || try "cuda-gdb" "of $limit_mib MiB" said_by cuda-gdb -batch -ex run "$program"
	! command -v ncu >/dev/null || try "ncu" "of $limit_mib MiB" said_by ncu "$program"
	! command -v compute-sanitizer >/dev/null || try "compute-sanitizer" "of $limit_mib MiB" said_by compute-sanitizer "$program"
}
# The line of the program among those of a tool.
said_by() { bounded "$@" >"$work/said" 2>&1 || true; grep MiB "$work/said" || tail -n 5 "$work/said" >&2; }

# taken COMMAND…: what a program says, and how much of the GPU was in use meanwhile, by the GPU's own word
taken() {
	local said
	: >"$work/used"
	said=$(timeout 60 "$@" 2>/dev/null | tail -n 1) || true
	echo "$said; of the GPU $(sort -n "$work/used" | tail -n 1) MiB at most"
}
others() {
	local programs=$build/gpu/other program pattern=$1
	export VK_DRIVER_FILES=${VK_DRIVER_FILES:-/usr/share/vulkan/icd.d/nvidia_icd.json}
	export VK_ICD_FILENAMES=$VK_DRIVER_FILES
	for program in opencl vulkan opengl; do
		[[ ! -x $programs/$program ]] || try "$program, 8 GiB" "$pattern" taken "$programs/$program" 8192
	done
	[[ ! -x $programs/nvdec ]] || try "nvdec, 8 GiB" 'MiB' taken "$programs/nvdec" 8192
}
close_others() {
	local name file
	for name in libnvidia-opencl.so.1 libGLX_nvidia.so.0 libEGL_nvidia.so.0 libnvidia-glcore.so. libnvidia-eglcore.so.; do
		for file in $(found "$name"); do
			mount --bind "$build/libslurm-vgpu-closed.so" "$file"
		done
	done
}

# Null launches, and programs that have nothing to do with CUDA, in turns. Costs are medians of the differences to
# the native one of the same round, with their standard error.
costs() {
	local round way what
	local -a ways=(native preload "preload, guards" guards)

	for round in {1..24}; do
		for way in "${ways[@]:round % 4}" "${ways[@]:0:round % 4}"; do
			unset LD_PRELOAD
			[[ $way != *guards ]] || guards up
			[[ $way != preload* ]] || export LD_PRELOAD=$self/libslurm-vgpu.so
			one_round "$way"
			unset LD_PRELOAD
			[[ $way != *guards ]] || guards down
		done
	done
	for what in launch true; do
		"$python" "$here/guard/costs.py" $what "$work" "${ways[@]}"
	done
}
# The middle of seven launches' times of a process, and the mean of 100 programs' in microseconds.
one_round() {
	local begun ended

	for _ in {1..7}; do echo launch; done | "$work/micro" 4 | tail -n +2 | sort -n | sed -n 4p >>"$work/launch.$1"
	begun=${EPOCHREALTIME/./}
	for _ in {1..100}; do /bin/true; done
	ended=${EPOCHREALTIME/./}
	echo $(((ended - begun) / 100)) >>"$work/true.$1"
}

# As in a container: another user, in a user namespace where nothing of /run is left.
contained() {
	local dev=/dev/slurm-vgpu way
	local -a inside=(setpriv --reuid 12345 --regid 12345 --clear-groups unshare --user --map-root-user --mount
		sh -c 'mount -t tmpfs none /run && exec "$@"' sh)

	how="user namespace"
	mkdir -p $dev
	mount --rbind $self $dev
	find "$work" -user 0 \( -name ledger -o -name groups \) -exec chown 12345:12345 {} +
	try "nvidia-smi" "^$limit_mib MiB" bounded "${inside[@]}" nvidia-smi --query-gpu=memory.total,memory.used --format=csv,noheader
	for way in dlopen deepbind; do
		try "$way" '^2[0-9]{3} MiB' bounded "${inside[@]}" "$work/ways" $way
	done
	try "PyTorch" 'out of memory at 2[0-9]{3} MiB' bounded "${inside[@]}" env HOME="$work" "$python" "$here/guard/programs.py" torch
	umount -R $dev
	try "without /dev/slurm-vgpu" '^not loaded: libslurm-vgpu.so' bounded "${inside[@]}" "$work/ways" dlopen
	rmdir $dev 2>/dev/null || true
}

if wanted programs || wanted tools; then
	for how in preload guards; do
		guards up
		[[ $how == guards ]] || export LD_PRELOAD=$self/libslurm-vgpu.so
		! wanted programs || programs
		! wanted tools || tools
		unset LD_PRELOAD
		guards down
	done
	guards up
	! wanted programs || contained
	guards down
fi
! wanted costs || costs
if wanted other; then
	how="no guards"
	others 'MiB|nothing'
	guards up
	export LD_PRELOAD=$self/libslurm-vgpu.so
	how="guards"
	others 'MiB|nothing'
	close_others
	how="closed"
	others '^nothing'
	try "nvidia-smi" "^$limit_mib MiB" bounded nvidia-smi --query-gpu=memory.total --format=csv,noheader
	frameworks
	unset LD_PRELOAD
	guards down
fi
how="no folder"
guards up
umount $self/libslurm-vgpu.so
rm $self/libslurm-vgpu.so
try "dlopen" '^not loaded: libslurm-vgpu.so' bounded "$work/ways" dlopen
exit $failed
