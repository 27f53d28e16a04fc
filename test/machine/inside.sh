#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# inside.sh: on a machine that is thrown away, after each boot the next stage: the steps of README, a job, a boot, a job, a boot of which
# nobody wrote the inventory, a config.yaml that is broken, a driver that is gone. Each check is one line, PASS or FAIL.
set -uo pipefail
exec 2>&1
cd /root || exit
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
stage=$(cat stage 2>/dev/null || echo 1)
echo $((stage + 1)) >stage

# check NAME COMMAND…: what the command said stands behind a FAIL alone.
check() {
	local name=$1 said
	shift
	if said=$("$@" 2>&1); then
		echo "PASS $name" | tee -a results
	else
		echo "FAIL $name: $(grep -v '^ok' <<<"$said" | tr '\n' '|' | tail -c 1500)" | tee -a results
		systemctl --no-pager --failed --full status
		tail -n 20 /var/log/slurm/*.log
	fi
}
# becomes SECONDS WANT COMMAND…: waits until the command's output has the pattern.
becomes() {
	local until=$((SECONDS + $1)) want=$2 said
	shift 2
	while ((SECONDS < until)); do
		said=$("$@" 2>&1)
		grep -qE "$want" <<<"$said" && return
		sleep 1
	done
	echo "no $want in: $said"
	return 1
}
# says PATTERN COMMAND…: whatever its exit code is.
says() {
	local want=$1 said
	shift
	said=$("$@" 2>&1)
	echo "$said"
	grep -qiE "$want" <<<"$said"
}
seen() { sed 's/^/SEEN /'; }
states() {
	systemctl list-units --all --plain --no-legend --no-pager 'slurm*' munge.service mariadb.service | awk '{print $1, $3, $4}'
}
as_user() { cd /tmp && setpriv --reuid=user --regid=user --init-groups env HOME=/home/user "$@"; }
slice() { as_user timeout 120 srun --gres=vgpu:1 --vgpu-mem=3000 "$@"; }
sees_3000() { says '^3000$' slice nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits; }
is_full() { says OUT_OF_MEMORY slice vgpu-fill --step 100; }
node_is() { becomes 90 "$1" sinfo -h -o '%T %E'; }
well() { vgpuctl doctor; }
again() {
	echo "== stage $stage ends, the machine boots"
	sync
	systemctl reboot
	exit
}

simulated_gpus() {
	simgpu-init /var/lib/simgpu devices=2 'name=NVIDIA H200' && echo /var/lib/simgpu >/etc/simgpu
}

# A Slurm of one's own, as an administrator writes it who has not heard of slurm-vgpu.
own_slurm() {
	becomes 30 192.0.2.1 ip -o address || return
	useradd -m user
	printf '[mysqld]\ninnodb_snapshot_isolation=OFF\n' >/etc/mysql/mariadb.conf.d/99-slurm.cnf
	systemctl restart mariadb munge
	mariadb -e "create database slurm_acct_db; create user slurm@localhost identified by 'machine'; grant all on slurm_acct_db.* to slurm@localhost"
	mkdir -p /etc/slurm /var/spool/slurmctld /var/spool/slurmd
	chown slurm: /var/spool/slurmctld
	cat >/etc/slurm/slurmdbd.conf <<-END
		AuthType=auth/munge
		DbdHost=vgpu-machine
		SlurmUser=slurm
		StorageType=accounting_storage/mysql
		StorageUser=slurm
		StoragePass=machine
		LogFile=/var/log/slurm/slurmdbd.log
		PidFile=/run/slurmdbd.pid
	END
	chown slurm: /etc/slurm/slurmdbd.conf
	chmod 600 /etc/slurm/slurmdbd.conf
	cat >/etc/slurm/slurm.conf <<-END
		ClusterName=machine
		SlurmctldHost=vgpu-machine
		SlurmUser=slurm
		AuthType=auth/munge
		StateSaveLocation=/var/spool/slurmctld
		SlurmdSpoolDir=/var/spool/slurmd
		SlurmctldLogFile=/var/log/slurm/slurmctld.log
		SlurmdLogFile=/var/log/slurm/slurmd.log
		ProctrackType=proctrack/cgroup
		TaskPlugin=task/cgroup,task/affinity
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core
		ReturnToService=1
		MessageTimeout=60
		BatchStartTimeout=60
		AccountingStorageType=accounting_storage/slurmdbd
		AccountingStorageHost=vgpu-machine
		NodeName=vgpu-machine CPUs=2 RealMemory=1000 State=UNKNOWN
		PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
	END
	printf 'CgroupPlugin=cgroup/v2\nConstrainCores=yes\n' >/etc/slurm/cgroup.conf
	systemctl restart slurmdbd && becomes 120 :6819 ss -tln && sacctmgr -i add cluster machine
	systemctl restart slurmctld slurmd && node_is idle
}

# The steps of README, from "Look at the GPUs" on.
by_the_book() {
	vgpu-gres inventory --write || return
	vgpu-gres gres.conf >/etc/slurm/gres.conf || return
	vgpu-gres slurm.conf >/tmp/lines || return
	grep -vE '^(#NodeName|AccountingStorageType)' /tmp/lines >>/etc/slurm/slurm.conf
	sed -i "s|^\(NodeName=vgpu-machine .*\)|\1 $(sed -n 's/^#NodeName=[^ ]* //p' /tmp/lines)|" /etc/slurm/slurm.conf
	vgpu-gres cluster.lua >/etc/slurm-vgpu/cluster.lua || return
	cp /usr/share/slurm-vgpu/job_submit.lua /etc/slurm/ || return
	vgpu-gres check || true # the plugin's line is missing
	vgpu-gres plugstack.conf >/etc/slurm/plugstack.conf || return
	systemctl enable --now slurm-vgpu-inventory.service slurm-vgpu-records.timer slurm-vgpu-sweep.timer slurm-vgpu-audit.timer slurm-vgpu-sample.timer || return
	systemctl restart slurmctld && systemctl restart slurmd && node_is idle
}

broken() {
	printf 'user_namespaces: deny\nwithout_slice: mask\n' >/etc/slurm-vgpu/config.yaml
	slice true || return # the last good copy is of this one
	printf '\tuser_namespaces: deny\n' >/etc/slurm-vgpu/config.yaml
}
holds() { says 'not permitted' as_user srun unshare -U true; }

for number in 0 1; do mknod -m 666 "/dev/nvidia$number" c 1 3; done # as the driver's tools do at each boot
case $stage in
1)
	echo "== stage 1: packages, and the steps of README ($(. /etc/os-release; echo "$PRETTY_NAME"), systemd $(systemctl --version | awk 'NR==1{print $2}'), $(stat -fc %T /sys/fs/cgroup))"
	check the_machine_has_cgroup_v2 test "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs
	simulated_gpus
	check a_slurm_of_its_own own_slurm
	check packages_install sh -c 'dpkg -i packages/*.deb'
	check the_steps_of_README by_the_book
	check check_is_well vgpu-gres check
	check doctor_is_well well
	check a_slice_is_what_was_asked_for sees_3000
	check and_no_more is_full
	states | seen
	again
	;;
2)
	echo "== stage 2: after a boot"
	states | seen
	check the_node_comes_back node_is idle
	check a_slice_after_a_boot sees_3000
	check doctor_is_well_after_a_boot well
	systemctl disable slurm-vgpu-inventory.service
	again
	;;
3)
	echo "== stage 3: after a boot without the inventory's unit"
	states | seen
	check there_is_no_inventory test ! -e /run/slurm-vgpu/inventory.json
	check a_slice_without_the_unit sees_3000
	systemctl enable slurm-vgpu-inventory.service
	check the_last_good_configuration broken
	check what_it_said_holds holds
	again
	;;
4)
	echo "== stage 4: after a boot with a broken config.yaml"
	states | seen
	check the_node_is_there node_is 'idle'
	check what_it_said_holds_after_a_boot holds
	check a_slice_all_the_same sees_3000
	check doctor_says_so sh -c '! vgpuctl doctor >/tmp/doctor 2>&1 && grep -q config.yaml /tmp/doctor'
	check slurmd_says_so sh -c 'grep -q "the last good copy holds: /etc/slurm-vgpu/config.yaml" /var/log/slurm/slurmd.log'
	: >/etc/slurm-vgpu/config.yaml
	slice true
	mv /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 /root/
	ldconfig
	again
	;;
5)
	echo "== stage 5: after a boot without a driver"
	states | seen
	timeout 60 setpriv --reuid=user --regid=user --init-groups srun --gres=vgpu:1 --vgpu-mem=3000 true >/tmp/without 2>&1
	seen </tmp/without
	check the_node_drains_once node_is 'drain.*vgpu'
	mv /root/libnvidia-ml.so.1 /usr/lib/x86_64-linux-gnu/
	ldconfig
	check the_inventory_is_written systemctl restart slurm-vgpu-inventory.service
	check the_sweep_takes_the_node_back systemctl start slurm-vgpu-sweep.service
	check the_node_is_idle_again node_is idle
	check a_slice_again sees_3000
	sinfo -o '%n %T %E' | seen
	echo "== end"
	awk '/^PASS/ {p++} /^FAIL/ {f++} END {printf "%d passed, %d failed\n", p, f}' results
	sync
	systemctl poweroff
	;;
esac
