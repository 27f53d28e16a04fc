// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	serveIn = "SIMGPU_CONTROL_SERVES" // this test is the control device of that folder
	playIn  = "SIMGPU_CONTROL_PLAYS"  // this test is a process that has a group, which it names
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveIn); dir != "" {
		if err := run(dir); err != nil {
			panic(err)
		}
		return
	}
	if dir := os.Getenv(playIn); dir != "" {
		play(dir)
		return
	}
	os.Exit(m.Run())
}

// started is a control device in a folder of its own.
func started(t *testing.T, confLines ...string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	if known, _ := os.ReadFile("/proc/filesystems"); !strings.Contains(string(known), "\tfuse\n") {
		t.Skip("this kernel has no FUSE")
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "simgpu.conf"), []byte(strings.Join(confLines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd, out := spawn(t, serveIn+"="+dir)
	if line := out(); line != "ready" {
		t.Skipf("no FUSE file system can be mounted here: %q", line)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(unix.SIGTERM)
		cmd.Wait()
		if entries, err := os.ReadDir(filepath.Join(dir, "control")); err != nil || len(entries) != 0 {
			t.Errorf("something is still mounted: %v, %v", entries, err)
		}
	})
	return dir
}

// spawn is this test as another process; next gives its next line.
func spawn(t *testing.T, env string) (cmd *exec.Cmd, next func() string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM} // on which the device unmounts
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewReader(stdout)
	return cmd, func() string {
		line, err := lines.ReadString('\n')
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
}

// user is who makes calls through one open file.
type user struct {
	fd     int
	client uint32
	name   uint32 // of the next object; the driver gives none out here
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func openDevice(dir string) int {
	fd, err := unix.Open(filepath.Join(dir, "control", fileName), unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(err)
	return fd
}

func newUser(dir string) *user { return newUserAs(dir, 0) }

// newUserAs is somebody else, by the number that the kernel has for a thread's files.
func newUserAs(dir string, uid int) *user {
	u := &user{fd: openDevice(dir), name: 0x5c000000}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	must(unix.Setfsuid(uid))
	defer unix.Setfsuid(0)
	status := uint32(0)
	u.client, status = u.allocAs(0, 0, 0, classClient, nil)
	if status != 0 {
		panic(status)
	}
	return u
}

// call is an ioctl.
func call(fd int, kind byte, number uintptr, argument []byte) error {
	request := uintptr(3)<<30 | uintptr(len(argument))<<16 | uintptr(kind)<<8 | number
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&argument[0])))
	if errno != 0 {
		return errno
	}
	return nil
}

// inner is an argument's pointer to parameters, which are pinned as long as the test's one call lasts.
func inner(pinned *runtime.Pinner, argument []byte, at int, params []byte) {
	if len(params) > 0 {
		pinned.Pin(&params[0])
		le.PutUint64(argument[at:], uint64(uintptr(unsafe.Pointer(&params[0]))))
	}
}

func (u *user) allocAs(client, parent, handle, class uint32, params []byte) (object, status uint32) {
	var pinned runtime.Pinner
	defer pinned.Unpin()
	argument := words(client, parent, handle, class, 0, 0, 0, 0)
	inner(&pinned, argument, 16, params)
	must(call(u.fd, 'F', escapeAlloc, argument))
	return le.Uint32(argument[8:]), le.Uint32(argument[28:])
}

func words(values ...uint32) []byte {
	b := make([]byte, 4*len(values))
	for i, v := range values {
		le.PutUint32(b[4*i:], v)
	}
	return b
}

func (u *user) alloc(parent, class uint32, params []byte) uint32 {
	u.name++
	object, status := u.allocAs(u.client, parent, u.name, class, params)
	if status != 0 {
		panic(status)
	}
	return object
}

func (u *user) controlOf(fd int, object, command uint32, params []byte) uint32 {
	var pinned runtime.Pinner
	defer pinned.Unpin()
	argument := words(u.client, object, command, 0, 0, 0, uint32(len(params)), 0)
	inner(&pinned, argument, 16, params)
	must(call(fd, 'F', escapeControl, argument))
	return le.Uint32(argument[28:])
}

func (u *user) control(object, command uint32, params []byte) uint32 {
	return u.controlOf(u.fd, object, command, params)
}

func (u *user) free(object uint32) uint32 {
	argument := words(u.client, 0, object, 0)
	must(call(u.fd, 'F', escapeFree, argument))
	return le.Uint32(argument[12:])
}

// context is what libcuda makes: a device, a subdevice and a group that computes, with channels.
type context struct {
	*user
	device, subdevice, group uint32
	channels                 []uint32
}

func newContext(dir string, instance uint32) *context { return newUser(dir).context(instance) }

func (u *user) context(instance uint32) *context {
	c := &context{user: u}
	c.device = u.alloc(u.client, classDevice, append(words(instance), make([]byte, 52)...))
	c.subdevice = u.alloc(c.device, classSubdevice, words(0))
	c.addGroup()
	return c
}

func (c *context) addGroup() {
	c.group = c.alloc(c.device, classGroup, words(0, 0, 0, 1, 0))
	c.channels = nil
	for range 8 {
		c.channels = append(c.channels, c.alloc(c.group, 0xc86f, nil))
	}
}

func (c *context) setSlice(us uint64) uint32 {
	return c.control(c.group, 0xa06c0103, words(uint32(us), uint32(us>>32)))
}

// submit puts a kernel in.
func (c *context) submit(length time.Duration) error {
	argument := make([]byte, submitBytes)
	copy(argument, words(c.client, c.channels[0]))
	le.PutUint64(argument[8:], uint64(length))
	return call(c.fd, 'S', simSubmit, argument)
}

// end waits for the next kernels' ends.
func (c *context) end() (ended []end, err error) {
	argument := make([]byte, waitBytes)
	err = call(c.fd, 'S', simWait, argument)
	for i := range int(le.Uint32(argument)) {
		ended = append(ended, end{le.Uint64(argument[8+16*i:]), le.Uint64(argument[16+16*i:])})
	}
	return ended, err
}

// fill always has work, until the file is closed.
func (c *context) fill(kernel time.Duration) {
	for range 8 {
		must(c.submit(kernel))
	}
	go func() {
		for {
			ended, err := c.end()
			if err != nil {
				return
			}
			for range ended {
				if c.submit(kernel) != nil {
					return
				}
			}
		}
	}()
}

func disabling(off bool, channels ...*context) []byte {
	b := make([]byte, 536)
	n := 0
	for _, c := range channels {
		for _, channel := range c.channels {
			le.PutUint32(b[24+4*n:], c.client)
			le.PutUint32(b[280+4*n:], channel)
			n++
		}
	}
	if off {
		b[0] = 1
	}
	le.PutUint32(b[4:], uint32(n))
	return b
}

// used is what the GPU did: busy for a process, and in all where GPM's counter stands.
func (u *user) used(index uint32, pid int) (busy, active time.Duration) {
	argument := make([]byte, activeBytes)
	copy(argument, words(index, uint32(pid)))
	must(call(u.fd, 'S', simActive, argument))
	return time.Duration(le.Uint64(argument[24:])), time.Duration(le.Uint64(argument[8:]))
}

// play is a process with a group that always has work. It says who it is, and waits.
func play(dir string) {
	c := newContext(dir, 0)
	c.fill(100 * time.Millisecond) // far ahead, on a busy machine
	fmt.Println(c.client, c.group, c.fd)
	time.Sleep(time.Hour)
}
