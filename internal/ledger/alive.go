// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// judgeTime bounds what a user can have a reader do by locks of his own, which the kernel looks through one by one. It is
// processor time, so that a busy machine does not make dead processes live.
var judgeTime = 10 * time.Millisecond

// statBytes is more than /proc/PID/stat has.
const statBytes = 1024

// heldNow is what the processes that live hold, of a job and of each of its steps, by the step's place in the ledger.
type heldNow struct {
	job  [MaxDevices]uint64
	step [MaxSteps][MaxDevices]uint64
}

// readHeld is nil where no process is over: then the ledger's own sums stand. A process that was killed takes nothing back,
// and the sums have it until the next of its job comes by (interposer/account/sweep.c).
func readHeld(fd int, slotsAt int64, high uint32) *heldNow {
	data := make([]byte, int(min(high, MaxProcs))*slotBytes)
	n, err := unix.Pread(fd, data, slotsAt)
	if err != nil {
		return nil
	}
	var living []ledgerSlot
	var over bool
	runtime.LockOSThread() // whose time it is
	defer runtime.UnlockOSThread()
	judge := judge{fd: fd, until: threadTime() + judgeTime}
	for i, slot := range slotsOf(data[:n]) {
		if judge.isOver(i, slot) {
			over = true
			continue
		}
		living = append(living, slot)
	}
	if !over { // as nearly always: sums by step are 32 KiB, which each look at each job would touch
		return nil
	}
	return sumOf(living)
}

func sumOf(living []ledgerSlot) *heldNow {
	var now heldNow
	for _, slot := range living {
		if slot.Step >= MaxSteps { // counted by nobody
			continue
		}
		for d, used := range slot.UsedBytes {
			now.job[d] = atMost(now.job[d], used)
			now.step[slot.Step][d] = atMost(now.step[slot.Step][d], used)
		}
	}
	return &now
}

// judge says which processes of a ledger are over. Who cannot be judged is not.
type judge struct {
	fd    int           // of the ledger
	until time.Duration // of threadTime
	pidns uint64        // of who reads; 0: not asked yet
}

// isOver goes by the lock that a process has while it lives, wherever it was seen from. Only where it got none does its pid count, and
// only in the pid namespace of who reads: a pid of another one says nothing here.
func (j *judge) isOver(at int, slot ledgerSlot) bool {
	if threadTime() >= j.until {
		return false
	}
	if slot.HasLock == 1 {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: LocksAt + int64(at), Len: 1}
		return unix.FcntlFlock(uintptr(j.fd), unix.F_OFD_GETLK, &lock) == nil && lock.Type == unix.F_UNLCK
	}
	if j.pidns == 0 {
		var st unix.Stat_t
		if unix.Stat("/proc/self/ns/pid", &st) != nil {
			return false
		}
		j.pidns = st.Ino
	}
	return slot.PIDNS == j.pidns && !slot.lives()
}

// threadTime is the processor time that this thread has had.
func threadTime() time.Duration {
	var used unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used) // every kernel has this clock
	return time.Duration(used.Nano())
}

// lives is vgpu_identity_alive of interposer/base/identity.c.
func (slot ledgerSlot) lives() bool {
	if slot.PID <= 0 {
		return false
	}
	if errors.Is(unix.Kill(int(slot.PID), 0), unix.ESRCH) {
		return false
	}
	threads, dead, start, image, ok := readStat(slot.PID)
	if !ok {
		return true
	}
	// A first thread that has ended looks like a zombie while others go on.
	if (dead && threads <= 1) || (slot.StartTicks != 0 && start != slot.StartTicks) {
		return false
	}
	return slot.Image == 0 || image == 0 || slot.Image == image // another program runs in the pid after an exec
}

// readStat reads fields 3, 20, 22 and 28 of proc_pid_stat(5). The second is a name, which may hold anything.
func readStat(pid int32) (threads uint64, dead bool, start, image uint64, ok bool) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/stat", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false, 0, 0, false
	}
	defer unix.Close(fd)
	text := make([]byte, statBytes)
	n, err := unix.Read(fd, text)
	if err != nil {
		return 0, false, 0, 0, false
	}
	text = text[:n]
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	number := func(field int) uint64 {
		value, err := strconv.ParseUint(string(fields[field-3]), 10, 64)
		if err != nil {
			ok = false
		}
		return value
	}
	if ok = len(fields) > 28-3; !ok {
		return 0, false, 0, 0, false
	}
	return number(20), fields[0][0] == 'Z' || fields[0][0] == 'X', number(22), number(28), ok
}

// atMost adds numbers that anybody may have written.
func atMost(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
