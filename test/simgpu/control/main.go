// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// simgpu-control is the control device of a simulated node: a FUSE file system with one file, nvidiactl, that answers ioctl as the real
// driver's /dev/nvidiactl does, with a GPU behind it that has a runlist.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const usage = `usage: simgpu-control DIR
Is the control device of the simulated node whose folder is DIR (simgpu-init makes it): DIR/control/nvidiactl, to which DIR/nvidiactl
is a link, until it gets SIGTERM or SIGINT. It says "ready" once it answers. As root, on a kernel with FUSE.
`

func main() {
	if len(os.Args) != 2 || os.Args[1] == "-h" || os.Args[1] == "--help" {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "simgpu-control:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	c, err := readConf(dir)
	if err != nil {
		return err
	}
	// A thread that waits in a call keeps its place among these until somebody takes it.
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))
	// A GPU does not wait for its turn on the machine's cores. Where this is refused, it is only later.
	syscall.AllThreadsSyscall(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, ^uintptr(19))
	d := newDriver(c)
	if d.timer, err = newTimer(); err != nil {
		return err
	}
	if err := makeDevice(); err != nil {
		return err
	}
	target := filepath.Join(dir, "control")
	if err := os.Mkdir(target, 0o755); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, unix.ENOTCONN) {
		return err
	}
	if d.connected, err = mount(target); err != nil {
		return err
	}
	link := filepath.Join(dir, fileName)
	os.Remove(link)
	if err := os.Symlink(filepath.Join("control", fileName), link); err != nil {
		return errors.Join(err, d.connected.unmount())
	}
	defer os.Remove(link)
	files := newFiles(d)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	ended := make(chan error, 1)
	go d.timer.wake(func() { d.enter(); d.leave() })
	go func() { ended <- d.connected.serve(files.handle) }()
	fmt.Println("ready")
	select {
	case err = <-ended:
	case <-signals:
	}
	return errors.Join(err, d.connected.unmount())
}

// makeDevice makes the node by which a process becomes a file system's server, where nobody has.
func makeDevice() error {
	err := unix.Mknod("/dev/fuse", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 229)))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "make a device", Path: "/dev/fuse", Err: err}
	}
	return nil
}
