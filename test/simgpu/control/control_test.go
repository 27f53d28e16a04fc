// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// player is another process whose group always has work, and the test's copy of its descriptor.
type player struct {
	*context
	cmd *exec.Cmd
	pid int
	at  int // its own number of the descriptor
}

func played(t *testing.T, dir string) *player {
	t.Helper()
	cmd, next := spawn(t, playIn+"="+dir)
	p := &player{context: &context{user: &user{}}, cmd: cmd, pid: cmd.Process.Pid}
	if _, err := fmt.Sscan(next(), &p.client, &p.group, &p.at); err != nil {
		t.Fatal(err)
	}
	p.device, p.subdevice = p.group-2, p.group-1
	for i := range uint32(8) {
		p.channels = append(p.channels, p.group+1+i)
	}
	p.fd = copied(t, p.pid, p.at)
	return p
}

func copied(t *testing.T, pid, fd int) int {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	own, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		t.Skipf("copy a descriptor: %v", err)
	}
	return own
}

// theGPU is the index of the one with the driver's instance 0.
const theGPU = 1

func busyOf(u *user, players ...*player) (had []time.Duration) {
	for _, p := range players {
		busy, _ := u.used(theGPU, p.pid)
		had = append(had, busy)
	}
	return had
}

// shares is who had how much of what both had together in that time, in percent.
func shares(u *user, during time.Duration, a, b *player) float64 {
	before := busyOf(u, a, b)
	time.Sleep(during)
	after := busyOf(u, a, b)
	hadA, hadB := after[0]-before[0], after[1]-before[1]
	return 100 * float64(hadA) / float64(hadA+hadB)
}

func TestSlicesAreShares(t *testing.T) {
	dir := started(t)
	a, b, root := played(t, dir), played(t, dir), newUser(dir)
	if status := a.setSlice(3000) | b.setSlice(7000); status != 0 {
		t.Fatalf("set slices: status %#x", status)
	}
	if got := shares(root, 2*time.Second, a, b); math.Abs(got-30) > 1 {
		t.Errorf("%.2f %% with a slice of 3 ms beside one of 7", got)
	}
	us := words(0, 0)
	if status := a.control(a.group, 0xa06c0104, us); status != 0 || le.Uint64(us) != 3000 {
		t.Errorf("the slice is %d us, status %#x", le.Uint64(us), status)
	}
	params := words(a.group, 0, 0, 0, 0, 0, 0, 0)
	if status := a.control(a.subdevice, 0x20801215, params); status != 0 || le.Uint32(params[8:]) < 100 || le.Uint32(params[16:]) != 0 {
		t.Errorf("saves: %v, status %#x", params, status)
	}
}

func TestAnIdleNeighbourCostsNothing(t *testing.T) {
	dir := started(t)
	newContext(dir, 0)
	a, root := played(t, dir), newUser(dir)
	time.Sleep(50 * time.Millisecond)
	before := busyOf(root, a)[0]
	began := time.Now()
	time.Sleep(500 * time.Millisecond)
	took := time.Since(began) // the next call comes later still
	if had := busyOf(root, a)[0] - before; had < took*99/100 {
		t.Errorf("ran for %v of %v", had, took)
	}
}

func TestOffMeansOff(t *testing.T) {
	dir := started(t)
	a, b := played(t, dir), played(t, dir)
	root := newContext(dir, 0)
	if status := root.control(root.subdevice, 0x2080110b, disabling(true, a.context)); status != 0 {
		t.Fatalf("disable: status %#x", status)
	}
	before := busyOf(root.user, a, b)
	time.Sleep(300 * time.Millisecond)
	after := busyOf(root.user, a, b)
	if after[0] != before[0] {
		t.Errorf("ran for %v while it was off", after[0]-before[0])
	}
	if had := after[1] - before[1]; had < 290*time.Millisecond {
		t.Errorf("the other ran for %v of 0.3 s", had)
	}
	other := newContext(dir, 1)
	if status := other.control(other.subdevice, 0x2080110b, disabling(true, a.context)); status != statusBadChannel {
		t.Errorf("disable by another GPU's subdevice: status %#x", status)
	}
	if status := root.control(root.subdevice, 0x2080110b, disabling(false, a.context)); status != 0 {
		t.Fatalf("enable: status %#x", status)
	}
	time.Sleep(100 * time.Millisecond)
	if busyOf(root.user, a)[0] == after[0] {
		t.Error("does not run although it is on again")
	}
}

func TestTheOpenFileIsTheOwner(t *testing.T) {
	dir := started(t)
	a, other := played(t, dir), newUser(dir)
	if status := a.setSlice(5000); status != 0 {
		t.Errorf("by a copy of its descriptor: status %#x", status)
	}
	us := words(5000, 0)
	if status := a.controlOf(other.fd, a.group, 0xa06c0103, us); status != statusBadClient {
		t.Errorf("by another open file: status %#x", status)
	}
	again, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", a.pid, a.at), unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if status := a.controlOf(again, a.group, 0xa06c0103, us); status != statusBadClient {
		t.Errorf("by a second one of the same: status %#x", status)
	}
	if status := a.free(0x5c00ffff); status != statusNoSuchObject {
		t.Errorf("free what is not there: status %#x", status)
	}
	if _, status := other.allocAs(other.client, other.client, 0, 0x1234, nil); status != statusBadClass {
		t.Errorf("make what nobody knows: status %#x", status)
	}
}

func TestTheLastCloseEndsAll(t *testing.T) {
	dir := started(t)
	a := played(t, dir)
	root := newContext(dir, 0)
	off := func() uint32 {
		return root.control(root.subdevice, 0x2080110b, disabling(false, a.context))
	}
	a.cmd.Process.Kill() // while it waits for a kernel
	a.cmd.Wait()
	if status := off(); status != 0 {
		t.Errorf("killed, but a copy is open: status %#x", status)
	}
	before := busyOf(root.user, a)[0]
	await(t, "its work goes on", func() bool { return busyOf(root.user, a)[0] != before })
	unix.Close(a.fd)
	await(t, "its client goes with the last close", func() bool { return off() == statusBadChannel })
	before = busyOf(root.user, a)[0]
	time.Sleep(50 * time.Millisecond)
	if after := busyOf(root.user, a)[0]; after != before {
		t.Errorf("its work went on for %v", after-before)
	}
}

func TestWaitingEndsWithASignal(t *testing.T) {
	dir := started(t)
	c := newContext(dir, 0)
	ended := make(chan error, 1)
	tid := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // the signal is this thread's
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		_, err := c.end()
		ended <- err
	}()
	thread := <-tid
	for {
		unix.Tgkill(os.Getpid(), thread, unix.SIGURG) // the runtime's own, which asks for nothing
		select {
		case err := <-ended:
			if err != unix.EINTR {
				t.Errorf("it ended with %v", err)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestRefusalAndNames(t *testing.T) {
	dir := started(t, "devices=3", "control=refuse", "device2.pci_bus=7")
	c := newContext(dir, 0)
	if status := c.setSlice(1000); status != statusNotSupported {
		t.Errorf("set a slice: status %#x", status)
	}
	if status := c.control(c.subdevice, 0x2080110b, disabling(true, c)); status != statusNotSupported {
		t.Errorf("disable: status %#x", status)
	}
	ids := make([]byte, 128)
	if status := c.control(c.client, 0x201, ids); status != 0 || le.Uint32(ids[12:]) != 0xffffffff {
		t.Fatalf("GPUs: %x, status %#x", ids, status)
	}
	id := le.Uint32(ids[8:])
	pci, info := words(id, 0, 0), words(id, 0, 9, 0, 0, 0, 9, 0)
	if status := c.control(c.client, 0x21b, pci) | c.control(c.client, 0x205, info); status != 0 {
		t.Fatalf("status %#x", status)
	}
	if bus, instance := le.Uint16(pci[8:]), le.Uint32(info[8:]); bus != 7 || instance != 0 {
		t.Errorf("the last GPU has bus %d and instance %d, want 7 and 0", bus, instance)
	}
}
