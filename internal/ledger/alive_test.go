// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// putSlots writes slots as processes of the job do, and sums that still have all of them.
func putSlots(t *testing.T, path string, slots ...ledgerSlot) {
	t.Helper()
	poke(t, path, func(head *ledgerHead) {
		head.SlotsHigh = uint32(len(slots))
		head.PeakBytes[0] = 5000
		head.UsedBytes[0] = 0
		head.Step[0], head.Step[2] = ledgerStep{InUse: 1, StepID: 10}, ledgerStep{InUse: 1, StepID: 12}
		for _, s := range slots {
			head.UsedBytes[0] += s.UsedBytes[0]
			if s.Step < MaxSteps {
				head.Step[s.Step].UsedBytes[0] += s.UsedBytes[0]
			}
		}
	})
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := binary.Append(nil, binary.LittleEndian, slots)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(data, int64(headBytes)); err != nil {
		t.Fatal(err)
	}
}

// slotOf is that of a process that lives, in the namespace of this one, without a lock.
func slotOf(t *testing.T, pid int, bytes uint64) ledgerSlot {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		t.Fatal(err)
	}
	_, _, start, image, ok := readStat(int32(pid))
	if !ok || start == 0 || image == 0 {
		t.Fatalf("process %d: %d, %d, %v", pid, start, image, ok)
	}
	return ledgerSlot{State: 1, PID: int32(pid), PIDNS: st.Ino, StartTicks: start, Image: image, Step: 2, UsedBytes: [MaxDevices]uint64{bytes}}
}

// victim is a process of which the test may do away. It has answered: Start returns while the kernel still lays out the program's
// memory, and until then it has no stack to be known by.
func victim(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func newLedger(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), LedgerFile)
	if err := Create(path, 12, 1, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Fatal(err)
	}
	return path
}

// awaitZombie waits until the kernel has taken the process down, which nobody reaps.
func awaitZombie(t *testing.T, pid int) {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

// usedOf reads both ways, which say the same, of a slice of 1000 bytes.
func usedOf(t *testing.T, path string) (job, first, third uint64) {
	t.Helper()
	const limit = 1000
	usage, err := Read(path, 12, Bounds{Bytes: []uint64{limit}})
	if err != nil || len(usage.Steps) != 2 {
		t.Fatalf("%+v, %v", usage, err)
	}
	devices, err := ReadDevices(path, 12, Bounds{Bytes: []uint64{limit}})
	if err != nil || devices[0] != usage.Devices[0] {
		t.Errorf("%+v and %+v, %v", devices, usage.Devices, err)
	}
	if usage.Devices[0].PeakBytes != limit {
		t.Errorf("the peak is %d", usage.Devices[0].PeakBytes)
	}
	return usage.Devices[0].UsedBytes, usage.Steps[0].Devices[0].UsedBytes, usage.Steps[1].Devices[0].UsedBytes
}

func TestWhoIsOverHoldsNothing(t *testing.T) {
	killed, reaped := victim(t), victim(t)
	lives := slotOf(t, os.Getpid(), 100)
	zombie, gone := slotOf(t, killed.Process.Pid, 7), slotOf(t, reaped.Process.Pid, 7)
	if err := errors.Join(killed.Process.Kill(), reaped.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = reaped.Wait() // it was killed
	awaitZombie(t, killed.Process.Pid)
	with := func(slot ledgerSlot, change func(*ledgerSlot)) ledgerSlot {
		slot.UsedBytes[0] = 7
		change(&slot)
		return slot
	}
	for name, tc := range map[string]struct {
		slot   ledgerSlot
		locked bool // its lock is held
		over   bool
	}{
		"it lives":                          {slot: with(lives, func(*ledgerSlot) {})},
		"killed, and reaped":                {slot: gone, over: true},
		"killed, and not reaped":            {slot: zombie, over: true},
		"its pid is another's":              {slot: with(lives, func(s *ledgerSlot) { s.StartTicks-- }), over: true},
		"another program in its pid":        {slot: with(lives, func(s *ledgerSlot) { s.Image += 16 }), over: true},
		"without times, as garbage may be":  {slot: with(lives, func(s *ledgerSlot) { s.StartTicks, s.Image = 0, 0 })},
		"no pid":                            {slot: with(gone, func(s *ledgerSlot) { s.PID = 0 }), over: true},
		"in another namespace":              {slot: with(gone, func(s *ledgerSlot) { s.PIDNS++ })},
		"in one that is not known":          {slot: with(gone, func(s *ledgerSlot) { s.PIDNS = 0 })},
		"it has its lock there":             {slot: with(gone, func(s *ledgerSlot) { s.PIDNS++; s.HasLock = 1 }), locked: true},
		"its lock is gone there":            {slot: with(lives, func(s *ledgerSlot) { s.PIDNS++; s.HasLock = 1 }), over: true},
		"it has its lock":                   {slot: with(gone, func(s *ledgerSlot) { s.HasLock = 1 }), locked: true},
		"its lock is gone":                  {slot: with(lives, func(s *ledgerSlot) { s.HasLock = 1 }), over: true},
		"a lock that nobody ever had there": {slot: with(gone, func(s *ledgerSlot) { s.PIDNS++; s.HasLock = 2 })},
	} {
		t.Run(name, func(t *testing.T) {
			path := newLedger(t)
			other := with(lives, func(s *ledgerSlot) { s.UsedBytes[0], s.Step = 20, 0 })
			putSlots(t, path, lives, tc.slot, other)
			if tc.locked {
				file, err := os.OpenFile(path, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				lock := unix.Flock_t{Type: unix.F_WRLCK, Start: LocksAt + 1, Len: 1}
				if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
					t.Fatal(err)
				}
			}
			want := uint64(7)
			if tc.over {
				want = 0
			}
			if job, first, third := usedOf(t, path); job != 120+want || first != 20 || third != 100+want {
				t.Errorf("the job holds %d, its steps %d and %d", job, first, third)
			}
		})
	}
}

// What a user has written into his ledger costs nobody's time, and stays within its limit.
func TestHostileSlots(t *testing.T) {
	defer func(before time.Duration) { judgeTime = before }(judgeTime)
	judgeTime = time.Minute // with a race detector it takes longer to judge all
	lives := slotOf(t, os.Getpid(), math.MaxUint64)
	over := lives
	over.HasLock = 1
	lost := lives
	lost.Step = math.MaxUint32
	path := newLedger(t)
	putSlots(t, path, lives, over, lives, lost)
	if job, _, third := usedOf(t, path); job != 1000 || third != 1000 {
		t.Errorf("the job holds %d, its step %d", job, third)
	}
	// All slots, and more than there are, whose processes only a lock could tell of.
	all := make([]ledgerSlot, MaxProcs)
	for i := range all {
		all[i] = ledgerSlot{State: 1, HasLock: 1, UsedBytes: [MaxDevices]uint64{1}}
	}
	putSlots(t, path, all...)
	poke(t, path, func(head *ledgerHead) { head.SlotsHigh = math.MaxUint32 })
	if job, first, _ := usedOf(t, path); job != 0 || first != 0 {
		t.Errorf("the job holds %d, its step %d", job, first)
	}
	// It is cut behind its head, and in the middle of a slot.
	for _, size := range []int64{int64(headBytes), int64(headBytes) + 10} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if job, _, _ := usedOf(t, path); job != 1000 {
			t.Errorf("cut at %d the job holds %d", size, job)
		}
	}
}

func TestWhoeverTakesTooLongToJudgeLives(t *testing.T) {
	over := slotOf(t, os.Getpid(), 1)
	over.HasLock = 1
	file, err := os.Open(newLedger(t))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for until, want := range map[time.Duration]bool{threadTime() + time.Minute: true, threadTime(): false} {
		j := judge{fd: int(file.Fd()), until: until}
		if got := j.isOver(0, over); got != want {
			t.Errorf("until %s: %v", until, got)
		}
	}
}
