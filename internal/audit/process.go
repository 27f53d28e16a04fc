// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

// process is what the kernel says of one, and which job it is of.
type process struct {
	pid     int
	start   uint64 // in clock ticks since boot: tells it from a later one of this pid
	uid     uint32
	name    string // as it calls itself
	inner   int32  // its pid in its own pid namespace
	pidns   uint64 // that namespace's inode; 0: not known
	foreign bool   // that is not the namespace of who asks
	job     uint32 // 0: none that is known
	placed  bool   // Slurm put it into a job's cgroup
}

// look reads /proc. Who is gone was no stray.
func (a Auditor) look(pid int, jobs known) (p process, ok bool) {
	dir := filepath.Join(a.Proc, strconv.Itoa(pid))
	p.pid = pid
	if p.start, ok = startOf(dir); !ok {
		return p, false
	}
	if p.uid, ok = uidOf(dir); !ok {
		return p, false
	}
	p.name = nameOf(dir)
	p.inner = innerPID(dir, pid)
	p.pidns = namespace(filepath.Join(dir, "ns", "pid"))
	p.foreign = p.pidns != 0 && p.pidns != namespace(filepath.Join(a.Proc, "self", "ns", "pid"))
	if p.job, p.placed = jobs.ofCgroup(dir); !p.placed {
		p.job, _, _ = a.jobOf(pid, jobs)
	}
	again, ok := startOf(dir)
	return p, ok && again == p.start
}

// ticks is now, as the kernel counts when a process started: hundredths of a second since boot, whatever its own clock
// interrupt is.
func ticks() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return math.MaxUint64 // nobody started later
	}
	return uint64(now.Nano()) / uint64(time.Second/100)
}

// startOf is when a process began.
func startOf(dir string) (start uint64, ok bool) {
	_, start, ok = statOf(dir)
	return start, ok
}

// statOf reads fields 3, 4 and 22 of proc_pid_stat(5). The second is a name, which may hold anything. A zombie is there still.
func statOf(dir string) (parent int, start uint64, ok bool) {
	overText(filepath.Join(dir, "stat"), func(text []byte) {
		if fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]); len(fields) >= 20 {
			var err, parentErr error
			parent, parentErr = strconv.Atoi(string(fields[1]))
			start, err = strconv.ParseUint(string(fields[19]), 10, 64)
			ok = err == nil && parentErr == nil
		}
	})
	return parent, start, ok
}

// nameOf is fit to be printed.
func nameOf(dir string) string {
	var name string
	overText(filepath.Join(dir, "comm"), func(text []byte) { name = strings.TrimSuffix(string(text), "\n") })
	return slurm.Printable(name)
}

// innerPID is the last of NSpid:, and the pid itself where a kernel has no such line.
func innerPID(dir string, pid int) int32 {
	last := int32(pid)
	overText(filepath.Join(dir, "status"), func(text []byte) {
		if fields := bytes.Fields(lineOf(text, "NSpid:")); len(fields) > 0 {
			if inner, err := strconv.ParseInt(string(fields[len(fields)-1]), 10, 32); err == nil {
				last = int32(inner)
			}
		}
	})
	return last
}

// namespace reads the inode in "pid:[4026531836]".
func namespace(link string) uint64 {
	text, err := os.Readlink(link)
	if err != nil {
		return 0
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(text, "pid:["), "]"), 10, 64)
	if err != nil {
		return 0
	}
	return inode
}
