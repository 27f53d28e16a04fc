// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is the processor time that the cluster has taken, by who took it: the daemons by themselves, what slurmds started
// and waited for ("prolog and epilog"), what outlived its parent ("slurmstepd and below", with whatever an epilog leaves behind),
// and what the caller of this program ran ("commands"). A process counts once it has ended and was waited for; a daemon that was
// started again begins at nothing.
func (c *Cluster) CPUTime() (map[string]time.Duration, error) {
	took := map[string]time.Duration{}
	for name, d := range c.daemons {
		own, children, err := cpuTimeOf(d.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		if _, node := c.ports[name]; node && !isServer(name) {
			took["slurmd"] += own
			took["prolog and epilog"] += children
			continue
		}
		took[name] += own + children
	}
	_, orphans, err := cpuTimeOf(os.Getppid()) // the keeper
	if err != nil {
		return nil, err
	}
	took["slurmstepd and below"] = orphans
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err != nil {
		return nil, err
	}
	took["commands"] = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	return took, nil
}

func isServer(name string) bool {
	return name == "slurmctld" || name == "slurmdbd" || name == "mariadb" || name == "munge"
}

// tick is the unit of the times in /proc/PID/stat: USER_HZ, which is 100 on every architecture that Slurm runs on.
const tick = 10 * time.Millisecond

// cpuTimeOf is what a process took by itself, and what those took that it waited for.
func cpuTimeOf(pid int) (own, children time.Duration, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third on: see identify
	var ticks [4]int64
	for i := range ticks {
		if len(fields) < 15 {
			return 0, 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
		}
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return tick * time.Duration(ticks[0]+ticks[1]), tick * time.Duration(ticks[2]+ticks[3]), nil
}
