#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [--dir DIR] [--mirror URL] [SUITE]: installs the committed tree's packages by the book on a machine of their own, and boots that
# machine again: a release of Debian in qemu, with systemd, cgroup v2 and Slurm's services. What is seen there is inside.sh's to judge.
# It runs without a network and without rights on this machine beyond those of making its disk.
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
dir=$top/build/machine
mirror=
suite=trixie
while (($#)); do
	case $1 in
	--dir | --mirror) (($# > 1)) || exit 2; declare "${1#--}=$2"; shift ;;
	-*) echo "usage: run.sh [--dir DIR] [--mirror URL] [SUITE]" >&2; exit 2 ;;
	*) suite=$1 ;;
	esac
	shift
done
say() { echo "machine: $*"; }
die() { say "$*" >&2; exit 1; }
[[ $suite =~ ^[a-z]+$ ]] || die "no release is called $suite"
((EUID == 0)) || die "needs root: debootstrap does"
for program in debootstrap qemu-system-x86_64 mke2fs; do
	command -v "$program" >/dev/null || die "needs $program: apt-get install debootstrap qemu-system-x86 e2fsprogs"
done
mirror=${mirror:-$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Origin: Debian' 'Label: Debian' | sed -n 1p)}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
base=$dir/$suite.base log=$dir/$suite.log

# What any machine with Slurm has before slurm-vgpu comes; kept for the next time.
packages=systemd,systemd-sysv,udev,dbus,libpam-systemd,linux-image-cloud-amd64,initramfs-tools,iproute2,procps,python3-minimal
slurm="slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins munge mariadb-server"
make_base() {
	[[ ! -d $base ]] || return 0
	say "making a $suite with Slurm"
	rm -rf --one-file-system "$base.new"
	unshare --mount debootstrap --variant=minbase "--include=$packages" "$suite" "$base.new" "$mirror"
	cp /etc/resolv.conf "$base.new/etc/"
	printf '#!/bin/sh\nexit 101\n' >"$base.new/usr/sbin/policy-rc.d" # nothing is started in there
	chmod +x "$base.new/usr/sbin/policy-rc.d"
	# The packages are words of their own.
	# shellcheck disable=SC2016
	unshare --mount --propagation private sh -ec 'mount --bind /proc "$1/proc"
		DEBIAN_FRONTEND=noninteractive chroot "$1" sh -c "apt-get update -q && apt-get install -yq --no-install-recommends $2"' sh "$base.new" "$slurm"
	rm "$base.new/usr/sbin/policy-rc.d" "$base.new/etc/resolv.conf"
	mv "$base.new" "$base"
}

# The simulated driver lies where a driver's package puts the real one.
make_disk() {
	local tree=$dir/releases/$suite/root/slurm-vgpu root=$dir/$suite.root
	rm -rf --one-file-system "$root"
	cp -a "$base" "$root"
	mkdir "$root/root/packages"
	cp "$tree"/build/packages/*.deb "$root/root/packages/"
	cp "$tree"/build/sim/lib*.so.1 "$root/usr/lib/x86_64-linux-gnu/"
	cp "$tree"/build/sim/{nvidia-smi,vgpu-fill,vgpu-busy,vgpu-cheat,simgpu-init,simgpu-control} "$root/usr/bin/"
	ldconfig -r "$root"
	cp "$here"/{inside,vgpud}.sh "$root/root/"
	cp "$here"/machine-test.service "$root/etc/systemd/system/"
	mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
	ln -s ../machine-test.service "$root/etc/systemd/system/multi-user.target.wants/"
	echo vgpu-machine >"$root/etc/hostname"
	# As the driver has them made at each boot.
	printf 'c /dev/nvidia%s 0666 root root - 1:3\n' 0 1 >"$root/etc/tmpfiles.d/nvidia.conf"
	# Names are looked up for addresses that some interface besides the loopback has.
	printf '127.0.0.1 localhost\n192.0.2.1 vgpu-machine\n' >"$root/etc/hosts"
	printf '[NetDev]\nName=vgpu0\nKind=dummy\n' >"$root/etc/systemd/network/vgpu0.netdev"
	printf '[Match]\nName=vgpu0\n[Network]\nAddress=192.0.2.1/24\n' >"$root/etc/systemd/network/vgpu0.network"
	ln -s /usr/lib/systemd/system/systemd-networkd.service "$root/etc/systemd/system/multi-user.target.wants/"
	mkdir -p "$root/etc/systemd/system/network-online.target.wants"
	ln -s /usr/lib/systemd/system/systemd-networkd-wait-online.service "$root/etc/systemd/system/network-online.target.wants/"
	# The simulated driver keeps what the GPUs hold in a file. Whose mounts are the node's own may have no such line.
	for unit in $(grep -l '^ProtectSystem=' "$top"/packaging/systemd/*.service); do
		mkdir -p "$root/etc/systemd/system/${unit##*/}.d"
		printf '[Service]\nReadWritePaths=-/var/lib/simgpu\n' >"$root/etc/systemd/system/${unit##*/}.d/simulated.conf"
	done
	: >"$root/etc/fstab"
	rm -f "$dir/$suite.img"
	mke2fs -q -t ext4 -d "$root" "$dir/$suite.img" 6G
	cp "$root"/boot/vmlinuz-* "$dir/$suite.vmlinuz"
	cp "$root"/boot/initrd.img-* "$dir/$suite.initrd"
	rm -rf --one-file-system "$root"
}

"$top/test/releases/run.sh" --keep --dir "$dir/releases" --mirror "$mirror" --tests packages "$suite" >"$log" 2>&1 || die "no packages: see $log"
make_base >>"$log" 2>&1 || die "no $suite: see $log"
make_disk
say "booting; all that it says is in $dir/$suite.console"
: >"$dir/$suite.console"
# boots CLOCK: until it powers off. Emulated: where it runs does not depend on what this machine may virtualize.
boots() {
	timeout 3600 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 3G -smp 2 -nographic -nic none -rtc "base=$1" \
		-drive "file=$dir/$suite.img,if=virtio,format=raw,cache=unsafe" -kernel "$dir/$suite.vmlinuz" -initrd "$dir/$suite.initrd" \
		-append "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 panic=5" </dev/null 2>&1 |
		tee -a "$dir/$suite.console" | grep --line-buffered -aE '^(== |PASS|FAIL|SEEN|[0-9]+ passed)' || true
}
# systemd puts a clock forward that is behind its own release: it is the first boots that are a year ahead.
boots "$(date -u -d '1 year' +%FT%T)"
grep -aq 'ends: poweroff' "$dir/$suite.console" || die "ended early: see $dir/$suite.console"
boots "$(date -u +%FT%T)"
grep -aqE '^[0-9]+ passed, 0 failed' "$dir/$suite.console" || die "failed: see $dir/$suite.console"
