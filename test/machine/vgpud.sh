# shellcheck shell=bash
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# vgpud.sh, for inside.sh: vgpud under systemd and cgroup v2. A step that it freezes is what it holds. Emulated, nothing of it is a matter of milliseconds.
vgpud=slurm-vgpu-vgpud.service
held=/run/slurm-vgpu/vgpud.off

unit() { systemctl show -P "$1" "$vgpud"; }
both() { pgrep -x vgpud; }
# As a unit: its journal of this boot.
journal() { journalctl --no-pager -o cat -b -u "$vgpud"; }
runs() { becomes 60 '^active running 2$' sh -c "echo \$(systemctl show -P ActiveState -P SubState $vgpud) \$(pgrep -c -x vgpud)"; }

switches() { for pid in $(both); do cat /proc/"$pid"/task/*/status; done | awk '/voluntary_ctxt_switches/ {n += $2} END {print n}'; }
opens_gpus() { for pid in $(both); do ls -l /proc/"$pid"/fd; done | grep -E '/dev/nvidia|control/nvidiactl'; }
# Without slices at work it costs nothing, and holds no file of a GPU.
idles() {
	local last
	runs || return
	[[ $(unit WatchdogUSec) == 0 ]] || return # systemd waits for no word
	for _ in {1..30}; do
		last=$(switches)
		sleep 2
		[[ $(switches) == "$last" ]] && ! opens_gpus && return
	done
	echo "it never rests: $last, $(switches)"
	return 1
}

# A job that changes its own time slice: the file that freezes it stands in $file then.
frozen_job() {
	local until=$((SECONDS + 120))
	scancel -u user # of a check that failed
	job=$(as_user sbatch --parsable --gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=50 -o /dev/null --wrap 'exec vgpu-cheat slice --us 5000 --for 600000') || return
	while ((SECONDS < until)); do
		file=$(grep -o "[^\"]*/job_$job/[^\"]*" "$held" 2>/dev/null | head -1)
		[[ $file ]] && grep -q 'frozen 1' "${file%/*}/cgroup.events" && return
		sleep 0.1
	done
	echo "job $job is not frozen: $(squeue -h -j "$job" -o '%T %r')"
	journal | tail -5
	return 1
}
ended() { scancel "$1"; becomes 60 '^$' squeue -h -j "$1" -t R,CG,S,PD; }
thawed() { becomes 60 'frozen 0|No such file' cat "${file%/*}/cgroup.events"; }

# What Slurm has in the step goes on, or nobody could end it.
freezes_the_users_part() {
	frozen_job || return
	local procs=${file%/user/*}/slurm/cgroup.procs
	[[ $file == */user/* && $(readlink "/proc/$(head -1 "$procs")/exe") == *slurmstepd* ]] || { echo "$file, $(cat "$procs")"; return 1; }
	grep -q 'frozen 0' "${procs%/*}/cgroup.events" || { echo "slurmstepd is frozen too"; return 1; }
	SECONDS=0
	scancel "$job" && becomes 30 '^$' squeue -h -j "$job" -t R,CG && ((SECONDS < 9)) # it is frozen for ten
}
leaves_suspended_what_slurm_suspends() {
	frozen_job && scontrol suspend "$job" || return
	becomes 60 '^0$' cat "$file" || return
	grep -q 'frozen 1' "${file%/*}/cgroup.events" || { echo "a suspended job goes on"; return 1; }
	scontrol resume "$job" && thawed && ended "$job"
}
goes_on_beside_another_slurmd() { # with the job, and what Slurm knows of it
	frozen_job && systemctl restart slurmd && thawed && says RUNNING squeue -h -j "$job" -o %T && ended "$job"
}
# lets_go HOW…: when both are ended, or stand still, systemd has what they held let go of, and both begun anew.
lets_go() {
	local before
	before=$(unit NRestarts)
	# Where processors are scarce a worker may be silent for too long: between two systemd watches nothing.
	frozen_job && becomes 10 '^[1-9]' unit WatchdogUSec || return
	# Both at once.
	# shellcheck disable=SC2046
	kill "$@" $(both)
	becomes 60 "^$((before + 1))\$" unit NRestarts && thawed && runs && ended "$job"
}
never_gives_up() {
	for _ in {1..8}; do
		runs || return
		# shellcheck disable=SC2046
		kill -9 $(both)
	done
	runs
}
stops_cleanly() { frozen_job && systemctl stop "$vgpud" && thawed && [[ ! -e $held && $(unit Result) == success ]] && systemctl start "$vgpud" && ended "$job"; }
is_begun_by_a_prolog() {
	systemctl disable --now "$vgpud" || return
	slice true && runs && grep -q "/$vgpud\$" "/proc/$(unit MainPID)/cgroup" && systemctl restart slurmd && runs && systemctl enable "$vgpud"
}
is_replaced_under_a_job() {
	local last
	frozen_job || return
	last=$(both | sort -n | tail -1)
	dpkg -i packages/*.deb || return
	ended "$job" # the next change of the node's slices
	becomes 60 '^$' sh -c "readlink /proc/\$(systemctl show -P MainPID $vgpud)/exe | grep deleted; pgrep -x vgpud | grep -x $last"
	runs
}
is_removed_over_a_frozen_step() {
	local plugin
	plugin=$(dpkg-query -W -f '${Package}\n' 'slurm-vgpu-plugin*')
	frozen_job && touch /run/slurm-vgpu/remove-anyway && dpkg -r "$plugin" slurm-vgpu && thawed || return
	[[ ! $(both) ]] || { echo "it runs on"; return 1; }
	dpkg -i packages/*.deb && systemctl enable --now "$vgpud" slurm-vgpu-inventory.service && runs && ended "$job" && node_is idle
}
# The services go on from job to job, and see what a prolog mounts later and vgpud counts there. So does the answer to a scrape.
services_see_pages() {
	local metrics=/var/lib/prometheus/node-exporter/slurm_vgpu.prom
	mkdir -p "${metrics%/*}"
	job=$(as_user sbatch --parsable --gres=vgpu:1 --vgpu-mem=3000 -o /dev/null --wrap 'vgpu-fill --upto 500 --hold 600 & exec vgpu-busy --us 1000 --rest 50000 --for 600000') || return
	becomes 120 "slice_gpu_seconds_total{.*jobid=\"$job\".*} (0\.|[1-9])" sh -c "systemctl start slurm-vgpu-textfile.service && cat $metrics" || return
	says "slice_memory_used_bytes{.*jobid=\"$job\".*} [1-9]" cat "$metrics" || return
	systemctl start slurm-vgpu-exporter.socket && says "slice_memory_used_bytes{.*jobid=\"$job\".*} [1-9]" scrape || return
	becomes 60 '"mem_mib":[1-9].*"busy_ms":[1-9]' sh -c "cat /run/slurm-vgpu/jobs/$job/timeline*" || return
	systemctl stop slurm-vgpu-exporter.socket slurm-vgpu-exporter.service slurm-vgpu-textfile.service
	ended "$job" && ! says "/pages/$job" cat /proc/*/mountinfo
}
scrape() (
	exec 5<>/dev/tcp/127.0.0.1/9746 && printf 'GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&5 && timeout 60 cat <&5
)
# says_so WHAT: doctor, check and its log say it, and a job has its slice all the same. (A program has no simulated GPU then: what plays that reads its memory.)
says_so() {
	systemctl restart "$vgpud" && runs || return
	says "vgpud.*$1" vgpuctl doctor && says "vgpud.*$1" vgpu-gres check && says "no weights.*$1" journal && slice true
}
without_ptrace() {
	mkdir -p "/run/systemd/system/$vgpud.d"
	sed -n '/^CapabilityBoundingSet=/ {s/ CAP_SYS_PTRACE//; s/^/[Service]\nCapabilityBoundingSet=\n/; p}' "/usr/lib/systemd/system/$vgpud" >"/run/systemd/system/$vgpud.d/bounded.conf"
	systemctl daemon-reload
	systemctl restart "$vgpud" && runs && says 'no weights.*CAP_SYS_PTRACE is missing' journal
}

slurmd_with_mounts() {
	mkdir -p /run/systemd/system/slurmd.service.d
	printf '[Service]\nPrivateTmp=yes\n' >/run/systemd/system/slurmd.service.d/mounts.conf
	systemctl daemon-reload
	systemctl restart slurmd && node_is idle
	says "vgpud.*sees no job's pages" vgpu-gres check && says "vgpud.*sees no job's pages" vgpuctl doctor || return
	rm -r /run/systemd/system/slurmd.service.d
	systemctl daemon-reload
	systemctl restart slurmd && node_is idle && ! says "vgpud.*sees no job's pages" vgpu-gres check
}

look_at_vgpud() {
	check vgpud_idles idles
	check a_slurmd_with_mounts_of_its_own_is_found slurmd_with_mounts
	check doctor_is_well_with_vgpud well
	check services_see_the_pages_of_jobs services_see_pages
	check vgpud_freezes_the_users_part freezes_the_users_part
	check vgpud_leaves_suspended_what_slurm_suspends leaves_suspended_what_slurm_suspends
	check vgpud_goes_on_beside_another_slurmd goes_on_beside_another_slurmd
	check killed_vgpud_lets_go lets_go -KILL
	check stopped_vgpud_lets_go lets_go -STOP
	check its_watchdog_says_so says 'watchdog' journal
	check vgpud_stops_cleanly stops_cleanly
	check vgpud_comes_back_however_often_it_dies never_gives_up
	check a_prolog_begins_vgpud is_begun_by_a_prolog
	check vgpud_is_replaced_under_a_job is_replaced_under_a_job
	check vgpud_is_removed_over_a_frozen_step is_removed_over_a_frozen_step
	check vgpud_says_that_its_unit_is_bounded without_ptrace
	rm -r "/run/systemd/system/$vgpud.d"
	systemctl daemon-reload
	systemctl restart "$vgpud"
	echo integrity >/sys/kernel/security/lockdown # both hold until the next boot
	check vgpud_under_lockdown_integrity freezes_the_users_part
	sysctl -q kernel.yama.ptrace_scope=3
	check vgpud_under_yama_3 says_so 'ptrace_scope is 3'
}
