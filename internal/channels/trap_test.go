// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// trap is a file system of one file, as a user can make with FUSE, that lets everybody wait who asks it for something once it is set.
type trap struct {
	fd    int
	path  string
	set   atomic.Bool
	asked atomic.Int64 // since it is set
}

func newTrap(t *testing.T) *trap {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("trap", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)); err != nil {
		unix.Close(fd)
		t.Skipf("no FUSE here: %v", err)
	}
	trap := &trap{fd: fd, path: filepath.Join(dir, "file")}
	ended := make(chan struct{})
	t.Cleanup(func() { // by force, so that nobody waits any more
		if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		<-ended
		unix.Close(fd)
	})
	go func() { defer close(ended); trap.serve() }()
	return trap
}

// serve answers what there is to answer (linux/fuse.h) until the file system is gone.
func (p *trap) serve() {
	buffer := make([]byte, 1<<20)
	for {
		n, err := unix.Read(p.fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT):
			continue
		case err != nil || n < 40:
			return
		case p.set.Load():
			p.asked.Add(1)
			continue
		}
		p.answer(le.Uint32(buffer[4:]), le.Uint64(buffer[8:]))
	}
}

func (p *trap) answer(op uint32, unique uint64) {
	const lookup, forget, open, flush, begin, batchForget = 1, 2, 14, 25, 26, 42
	const file = 2
	body, code := []byte(nil), unix.Errno(0)
	switch op {
	case forget, batchForget:
		return
	case lookup: // kept for good, and what it is like for no time, so that whoever wants to know has to ask
		body = make([]byte, 128)
		le.PutUint64(body, file)
		le.PutUint64(body[16:], 3600)
		le.PutUint64(body[40:], file)
		le.PutUint32(body[100:], unix.S_IFREG|0o666)
		le.PutUint32(body[104:], 1)
	case open:
		body = make([]byte, 16)
	case flush:
	case begin:
		body = make([]byte, 64)
		le.PutUint32(body, 7)
		le.PutUint32(body[4:], 31)
		le.PutUint32(body[20:], 4096)
	default:
		code = unix.ENOSYS
	}
	head := make([]byte, 16, 16+len(body))
	le.PutUint32(head, uint32(16+len(body)))
	le.PutUint32(head[4:], uint32(-int32(code)))
	le.PutUint64(head[8:], unique)
	_, _ = unix.Write(p.fd, append(head, body...)) // whoever asked may be gone
}

// trapped is the owner of a process that has the trap's file as descriptor 1.
func trapped(t *testing.T, p *trap) *Owner {
	t.Helper()
	// It opens the file itself: a fork of this program would stop it while it has to answer.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `exec sleep 60 1<>"$0"`, p.path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go cmd.Wait() // its end waits for that of the trap
	until(t, "it sleeps", func() bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return string(name) == "sleep\n"
	})
	o := ownerOf(t, asDriver(t), cmd.Process.Pid)
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	p.set.Store(true)
	return o
}

// soon is what a call says that must not wait for a user.
func soon(t *testing.T, what string, call func() error) {
	t.Helper()
	said := make(chan error, 1)
	go func() { said <- call() }()
	select {
	case err := <-said:
		if !errors.Is(err, ErrNotTheirs) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(30 * time.Second):
		t.Errorf("%s: waits for the user's file system", what)
	}
}

func TestAUsersFileSystemIsAskedNothing(t *testing.T) {
	p := newTrap(t)
	o := trapped(t, p)
	soon(t, "a call", func() error {
		before := runtime.NumGoroutine()
		err := o.Verify(Group{FD: 1})
		if now := runtime.NumGoroutine(); now > before {
			t.Errorf("%d more wait for it", now-before)
		}
		return err
	})
	if n := p.asked.Load(); n != 0 {
		t.Errorf("the user's file system was asked %d times", n)
	}
}

// The process puts the file there after it was looked at.
func TestNobodyWaitsForAUsersFileSystem(t *testing.T) {
	p := newTrap(t)
	o := trapped(t, p)
	soon(t, "a copy", func() error { _, err := o.copy(1); return err })
}
