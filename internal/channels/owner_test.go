// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asDriver takes /dev/null for the control device: the kernel refuses the calls.
func asDriver(t *testing.T) *Driver {
	t.Helper()
	is, err := identify(unix.AT_FDCWD, "/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	return &Driver{is: is}
}

// process is one that has /dev/null as descriptor 0, /dev/zero as 1 and a pipe as 2.
func process(t *testing.T) *exec.Cmd {
	t.Helper()
	zero, err := os.OpenFile("/dev/zero", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.Stdout = zero
	if _, err := cmd.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

func ownerOf(t *testing.T, d *Driver, pid int) *Owner {
	t.Helper()
	o, err := d.Owner(pid)
	if errors.Is(err, ErrNoCopies) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// open are this program's descriptors of files, each with its name. Pipes and pidfds are those of the tests.
func open(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		file, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err == nil && strings.HasPrefix(file, "/") && !strings.HasSuffix(file, "/fd") { // not that of ReadDir
			found[entry.Name()] = strings.TrimSuffix(file, " (deleted)")
		}
	}
	return found
}

func sameOpen(t *testing.T, before map[string]string, what string) {
	t.Helper()
	if after := open(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%s: open are %v, before %v", what, after, before)
	}
}

// until waits for what comes soon.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func TestOnlyTheDriversDescriptorsAreCopied(t *testing.T) {
	o := ownerOf(t, asDriver(t), process(t).Process.Pid)
	before := open(t)
	if err := o.SetTimeSlice(Group{FD: 0}, time.Millisecond); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("what stands for the driver: %v, want the kernel's answer to the ioctl", err)
	}
	for fd, what := range map[int]string{1: "another device", 2: "a pipe", 77: "a descriptor that is not open", -1: "no descriptor", 1 << 30: "too large a number"} {
		if err := o.SetTimeSlice(Group{FD: fd}, time.Millisecond); !errors.Is(err, ErrNotTheirs) {
			t.Errorf("%s: %v, want that it is not the process's", what, err)
		}
	}
	sameOpen(t, before, "after the calls")
}

func TestACopyIsGoneWhateverTheCallSays(t *testing.T) {
	o := ownerOf(t, asDriver(t), process(t).Process.Pid)
	before := open(t)
	copied := File(-1)
	failed := errors.New("no")
	if err := o.as(0, func(f File) error { copied = f; return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	sameOpen(t, before, "after an error")
	func() {
		defer func() { _ = recover() }()
		_ = o.as(0, func(File) error { panic("out of its frame") })
	}()
	sameOpen(t, before, "after a panic")
	if file, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", copied)); copied < 0 || err == nil && file == "/dev/null" {
		t.Errorf("the call had descriptor %d, which is now %q", copied, file)
	}
}

func TestWhoHasEndedIsKnown(t *testing.T) {
	d, cmd := asDriver(t), process(t)
	o := ownerOf(t, d, cmd.Process.Pid)
	if o.Ended() {
		t.Error("it has ended, it says, while it runs")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(o.pidfd), Events: unix.POLLIN}}, 60000); n != 1 {
		t.Fatalf("it does not end: %v", err)
	}
	if err := o.Verify(Group{}); !errors.Is(err, ErrGone) || !o.Ended() { // dead, not reaped
		t.Errorf("got %v", err)
	}
	cmd.Wait()
	if err := o.Verify(Group{}); !errors.Is(err, ErrGone) {
		t.Errorf("reaped: %v", err)
	}
	if _, err := d.Owner(cmd.Process.Pid); !errors.Is(err, ErrGone) {
		t.Errorf("opened again: %v", err)
	}
}

// TestAsAnotherUser is run by the test after it, as nobody.
func TestAsAnotherUser(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("OWNER_PID"))
	if err != nil {
		t.Skip("run by another test")
	}
	if err := ownerOf(t, asDriver(t), pid).Verify(Group{}); !errors.Is(err, ErrForbidden) {
		t.Errorf("got %v", err)
	}
}

func TestWhoMayNotCopyIsSaid(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // he is to get to the program
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestAsAnotherUser$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("OWNER_PID=%d", process(t).Process.Pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

func TestTheKernelsErrorsHaveNames(t *testing.T) {
	for errno, want := range map[error]error{
		unix.ESRCH: ErrGone, unix.EPERM: ErrForbidden, unix.EACCES: ErrForbidden, unix.ENOSYS: ErrNoCopies, unix.EMFILE: unix.EMFILE,
	} {
		if got := because(errno); !errors.Is(got, want) {
			t.Errorf("%v: %v, want %v", errno, got, want)
		}
	}
}

// Nobody is at work behind a number whose process nobody has waited for yet, and none behind one that is not there.
func TestAProcessThatHasEndedIsKnownByItsNumber(t *testing.T) {
	cmd := process(t)
	if HasEnded(cmd.Process.Pid) {
		t.Error("it has ended already")
	}
	cmd.Process.Kill()
	for until := time.Now().Add(time.Minute); !HasEnded(cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it has not ended")
		}
	}
	if !HasEnded(1 << 30) {
		t.Error("there is a process of that number")
	}
}

func TestDescriptorsOfTheControlDeviceAreFound(t *testing.T) {
	cmd := process(t)
	if found := Descriptors("/dev/zero", cmd.Process.Pid, time.Now().Add(time.Minute)); len(found) != 1 || found[0] != 1 {
		t.Errorf("%v, want 1 alone", found)
	}
	if found := Descriptors("/dev/full", cmd.Process.Pid, time.Now().Add(time.Minute)); len(found) > 0 {
		t.Errorf("%v are of a device that it does not have", found)
	}
	if found := Descriptors("/dev/zero", cmd.Process.Pid, time.Now()); len(found) > 0 {
		t.Errorf("%v are found without time", found)
	}
}
