#!/bin/bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# inside.sh: on a machine that is thrown away, after each boot the next stage: the steps of README, a job, a boot, a job, vgpud, a boot of which
# nobody wrote the inventory, a config.yaml that is broken, device files closed by one that is not believed, a driver that is gone, a clock
# that starts a year back. Each check is one line, PASS or FAIL.
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
# The state of each unit of ours and of Slurm's: name, enabled or not, what it is, how its last run ended.
states() {
	# Names are words of their own; of a template there is none.
	# shellcheck disable=SC2046
	systemctl show --property=Id,UnitFileState,ActiveState,SubState,Result munge.service mariadb.service \
		$(systemctl list-unit-files --no-legend --no-pager 'slurm*' | awk '$1 !~ /@/ {print $1}') |
		awk -F= '/./ {is[$1] = $2} /^$/ {show()} END {show()}
			function show() {
				if (is["Id"]) print is["Id"], (is["UnitFileState"] == "" ? "-" : is["UnitFileState"]), is["ActiveState"] "/" is["SubState"] (is["Result"] == "success" ? "" : "/" is["Result"])
				delete is
			}' | sort
}
# booted [UNIT…]: what became of the units by the boot, as a table. What is enabled is there, but for these units.
booted() {
	timeout 240 systemctl is-system-running --wait >/dev/null # slurmctld, too, is not there at once
	states >after
	join -a 1 -a 2 -e - -o 0,1.3,2.3,2.2 before after |
		awk 'BEGIN {row("UNIT", "BEFORE", "AFTER", "ENABLED")} {row($1, $2, $3, $4)}
			function row(unit, before, after, enabled) {printf "%-30s %-22s %-22s %s\n", unit, before, after, enabled}' | seen
	check "units_come_back_in_stage_$stage" come_back "$*"
}
come_back() {
	awk -v but=" $1 " '
		index(but, " " $1 " ") {next}
		$3 ~ /^failed/ || $2 == "enabled" && $3 !~ /^active/ && $1 !~ /devices/ {print; bad = 1}
		END {exit bad}' after
}
as_user() (cd /tmp && setpriv --reuid=user --regid=user --init-groups env HOME=/home/user "$@")
slice() { as_user timeout 120 srun --gres=vgpu:1 --vgpu-mem=3000 "$@"; }
sees_3000() { says '^3000$' slice nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits; }
is_full() { says OUT_OF_MEMORY slice vgpu-fill --step 100; }
node_is() { becomes 90 "$1" sinfo -h -o '%T %E'; }
well() { node_is '^idle' && vgpuctl doctor; } # while an epilog works it finds what that has not taken away yet
again() {
	echo "== stage $stage ends: ${1:-reboot}"
	states >before
	sync
	systemctl "${1:-reboot}"
	exit
}

simulated_gpus() {
	simgpu-init /var/lib/simgpu devices=2 'name=NVIDIA H200' && echo /var/lib/simgpu >/etc/simgpu || return
	cat >/etc/systemd/system/simgpu-control.service <<-END
		[Unit]
		Before=slurm-vgpu-vgpud.service slurmd.service
		[Service]
		ExecStart=/usr/bin/simgpu-control /var/lib/simgpu
		[Install]
		WantedBy=multi-user.target
	END
	echo 'L+ /dev/nvidiactl - - - - /var/lib/simgpu/control/nvidiactl' >/etc/tmpfiles.d/nvidiactl.conf
	systemctl enable --now simgpu-control.service && systemd-tmpfiles --create nvidiactl.conf
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
	cp /etc/slurm/slurm.conf own.conf
	systemctl restart slurmdbd && becomes 120 :6819 ss -tln && sacctmgr -i add cluster machine
	systemctl restart slurmctld slurmd && node_is idle
}

# The steps of README, from "Look at the GPUs" on.
by_the_book() {
	vgpu-gres inventory --write || return
	vgpu-gres gres.conf --counts >/etc/slurm/gres.conf || return
	vgpu-gres slurm.conf --counts >/tmp/lines || return
	cp own.conf /etc/slurm/slurm.conf
	grep -vE '^(#NodeName|AccountingStorageType)' /tmp/lines >>/etc/slurm/slurm.conf
	sed -i "s|^\(NodeName=vgpu-machine .*\)|\1 $(sed -n 's/^#NodeName=[^ ]* //p' /tmp/lines)|" /etc/slurm/slurm.conf
	vgpu-gres cluster.lua --counts >/etc/slurm-vgpu/cluster.lua || return
	cp /usr/share/slurm-vgpu/job_submit.lua /etc/slurm/ || return
	vgpu-gres check || true # the plugin's line is missing
	vgpu-gres plugstack.conf >/etc/slurm/plugstack.conf || return
	systemctl enable --now slurm-vgpu-inventory.service slurm-vgpu-vgpud.service || return
	systemctl stop slurmctld && systemctl restart slurmd && systemctl start slurmctld && node_is idle
}

broken() {
	printf 'user_namespaces: deny\nwithout_slice: mask\n' >/etc/slurm-vgpu/config.yaml
	slice true || return # the last good copy is of this one
	printf '\tuser_namespaces: deny\n' >/etc/slurm-vgpu/config.yaml
}
holds() { says 'not permitted' as_user srun unshare -U true; }

# The steps of slurm-vgpu-config.yaml(5), and then a slip.
closed() {
	cp /usr/share/slurm-vgpu/udev/70-slurm-vgpu.rules /etc/udev/rules.d/ || return
	echo 'device_files: closed' >/etc/slurm-vgpu/config.yaml
	systemctl enable --now slurm-vgpu-devices.service && slice true || return
	chmod 664 /etc/slurm-vgpu/config.yaml
}
cannot_open() {
	local number
	for number in 0 1; do
		[[ $(stat -c '%t:%a:%U' "/dev/nvidia$number") = 1:600:root ]] || { stat "/dev/nvidia$number"; return 1; }
		! as_user sh -c ": </dev/nvidia$number" || return
		! chmod 666 "/dev/nvidia$number" || return # as the driver's tools do
	done
}
before_slurmd() {
	(($(systemctl show -P ExecMainExitTimestampMonotonic slurm-vgpu-devices.service) < $(systemctl show -P ExecMainStartTimestampMonotonic slurmd.service)))
}
opened() {
	chmod 644 /etc/slurm-vgpu/config.yaml
	echo 'device_files: open' >/etc/slurm-vgpu/config.yaml
	systemctl disable slurm-vgpu-devices.service
	rm /etc/udev/rules.d/70-slurm-vgpu.rules
	vgpuctl devices open && slice true && as_user sh -c ': </dev/nvidia0'
}

begin() {
	as_user sbatch --parsable --gres=vgpu:1 --vgpu-mem=2000 --no-requeue -o /dev/null --wrap 'sleep 100000' >job || return
	becomes 90 "\"job\": $(cat job)," vgpuctl status --json && stays # its prolog is done
}
# A sweep leaves what a job holds.
stays() { vgpuctl sweep && says "\"job\": $(cat job)," vgpuctl status --json; }
# After a job vgpud has its leftovers looked for.
vgpud_looks() { rm -f /run/slurm-vgpu/audited && slice true && becomes 60 '^/run' ls /run/slurm-vgpu/audited; }

# shellcheck source=test/machine/vgpud.sh
. ./vgpud.sh

case $stage in
1)
	echo "== stage 1: packages, and the steps of README ($(. /etc/os-release; echo "$PRETTY_NAME"), systemd $(systemctl --version | awk 'NR==1{print $2}'), $(stat -fc %T /sys/fs/cgroup))"
	check the_machine_has_cgroup_v2 test "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs
	check simulated_gpus_are_there simulated_gpus
	check a_slurm_of_its_own own_slurm
	check packages_install sh -c 'dpkg -i packages/*.deb'
	check the_steps_of_README by_the_book
	check check_is_well vgpu-gres check
	check doctor_is_well well
	check a_slice_is_what_was_asked_for sees_3000
	check and_no_more is_full
	again
	;;
2)
	echo "== stage 2: after a boot"
	booted
	check the_node_comes_back node_is idle
	check a_slice_after_a_boot sees_3000
	check doctor_is_well_after_a_boot well
	check vgpud_with_nothing_to_do idles
	printf 'policy: elastic\n' >/etc/slurm-vgpu/config.yaml
	again
	;;
3)
	echo "== stage 3: vgpud"
	booted
	look_at_vgpud
	: >/etc/slurm-vgpu/config.yaml
	systemctl disable slurm-vgpu-inventory.service
	again
	;;
4)
	echo "== stage 4: after a boot without the inventory's unit"
	booted
	check there_is_no_inventory test ! -e /run/slurm-vgpu/inventory.json
	check a_slice_without_the_unit sees_3000
	systemctl enable slurm-vgpu-inventory.service
	check the_last_good_configuration broken
	check what_it_said_holds holds
	again
	;;
5)
	echo "== stage 5: after a boot with a broken config.yaml"
	booted
	check the_node_is_there node_is 'idle'
	check what_it_said_holds_after_a_boot holds
	check a_slice_all_the_same sees_3000
	check doctor_says_so sh -c '! vgpuctl doctor >/tmp/doctor 2>&1 && grep -q config.yaml /tmp/doctor'
	check slurmd_says_so sh -c 'grep -q "the last good copy holds: /etc/slurm-vgpu/config.yaml" /var/log/slurm/slurmd.log'
	check device_files_are_closed closed
	again
	;;
6)
	echo "== stage 6: after a boot with closed device files and a config.yaml of mode 664"
	# Before any job: a prolog closes as well.
	check the_files_are_closed cannot_open
	check before_slurmd_starts before_slurmd
	booted
	check the_unit_says_so says 'last good' journalctl --no-pager -b -u slurm-vgpu-devices.service
	check devices_are_as_configured vgpuctl devices status
	check the_node_is_there_with_closed_files node_is idle
	check a_slice_has_a_file_of_its_own slice sh -c ': </dev/nvidia0 || : </dev/nvidia1'
	check a_slice_with_closed_files sees_3000
	check who_has_no_slice_has_none says 'denied|not permitted' as_user srun sh -c ': </dev/nvidia0'
	check the_files_stay_closed cannot_open
	check doctor_says_so_again sh -c '! vgpuctl doctor >/tmp/doctor 2>&1 && grep -q config.yaml /tmp/doctor'
	check device_files_are_opened opened
	mv /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 /root/
	ldconfig
	again
	;;
7)
	echo "== stage 7: after a boot without a driver"
	booted slurm-vgpu-inventory.service
	timeout 60 setpriv --reuid=user --regid=user --init-groups srun --gres=vgpu:1 --vgpu-mem=3000 true >/tmp/without 2>&1
	seen </tmp/without
	check the_node_drains_once node_is 'drain.*vgpu'
	mv /root/libnvidia-ml.so.1 /usr/lib/x86_64-linux-gnu/
	ldconfig
	check the_inventory_is_written systemctl restart slurm-vgpu-inventory.service
	check the_sweep_takes_the_node_back vgpuctl sweep
	check the_node_is_idle_again node_is idle
	check a_slice_again sees_3000
	check a_job_that_runs_meanwhile begin
	date +%s >clock
	again poweroff
	;;
8)
	echo "== stage 8: after a boot whose clock starts a year back ($(date -u +%FT%T), before it was $(date -u -d "@$(cat clock)" +%FT%T))"
	check the_clock_is_back test $(($(cat clock) - $(date +%s))) -gt $((360 * 86400))
	booted
	becomes 90 'idle|mix|alloc' sinfo -h -o '%T %E' # the job's affair
	squeue -o '%i %T %R' | seen
	sacct -j "$(cat job)" -o JobID,State,Start,End | seen
	scontrol show job "$(cat job)" | grep -E 'JobState|Reason|StartTime' | seen
	check a_slice_by_the_old_clock sees_3000
	# Slurm takes a job for running whose start lies ahead.
	check doctor_names_the_job_that_is_gone says "job $(cat job) has .* holds nothing here" vgpuctl doctor
	scancel "$(cat job)"
	check it_is_gone_for_slurm_too becomes 90 '^$' squeue -h
	check doctor_by_the_old_clock well
	check a_sweep_by_the_old_clock vgpuctl sweep
	check vgpud_looks_by_the_old_clock vgpud_looks
	sinfo -o '%n %T %E' | seen
	echo "== end"
	awk '/^PASS/ {p++} /^FAIL/ {f++} END {printf "%d passed, %d failed\n", p, f}' results
	sync
	systemctl poweroff
	;;
esac
