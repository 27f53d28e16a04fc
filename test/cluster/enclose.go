// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	roleEnv  = "VGPU_CLUSTER_ROLE"
	exeEnv   = "VGPU_CLUSTER_EXE"
	homeEnv  = "VGPU_CLUSTER_HOME" // also marks every process of the cluster
	inPlace  = "in-place"          // a file in the folder: no namespace, the host's own /etc is used
	pidsFile = "pids"

	// lifelineFD is the read end of a pipe whose only writer is the parent: its end is the parent's.
	lifelineFD = 3
	graceToEnd = 10 * time.Second
)

// Enclose calls main inside a fresh cluster folder and returns its exit code when nothing that
// was started below is left. main's context ends with Ctrl-C, SIGTERM, SIGHUP or the death of
// the process that the user started.
func Enclose(main func(ctx context.Context, home Home) int) int {
	role := os.Getenv(roleEnv)
	os.Unsetenv(roleEnv)
	var code int
	var err error
	switch role {
	case "":
		code, err = outer()
	case "keeper":
		code, err = keeper(os.Getenv(homeEnv))
	default:
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			waitForEnd()
			cancel()
			// Whoever does not heed its context is ended; keeper clears up.
			time.Sleep(graceToEnd)
			os.Exit(130)
		}()
		code = main(ctx, Home(os.Getenv(homeEnv)))
		if ctx.Err() != nil && code == 0 {
			return 130 // ended before its time
		}
		return code
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return max(code, 1)
	}
	return code
}

// waitForEnd returns when a signal asks for the end or the parent is gone.
func waitForEnd() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	parentGone := make(chan struct{})
	go func() {
		_, _ = os.NewFile(lifelineFD, "lifeline").Read(make([]byte, 1))
		close(parentGone)
	}()
	select {
	case <-signals:
	case <-parentGone:
	}
}

func outer() (int, error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("a private cluster needs root: slurmd starts jobs as their users")
	}
	if err := ClearStale(); err != nil {
		return 1, err
	}
	home, err := newHome()
	if err != nil {
		return 1, err
	}
	if err := record(string(home), "outer", os.Getpid()); err != nil {
		return 1, err
	}
	code, err := keep(string(home), "keeper", true)
	return code, errors.Join(err, home.remove())
}

func keeper(home string) (int, error) {
	unix.CloseOnExec(lifelineFD)
	if _, err := os.Stat(filepath.Join(home, inPlace)); err != nil {
		if err := enterPrivate(home); err != nil {
			return 1, err
		}
	}
	if err := record(home, "keeper", os.Getpid()); err != nil {
		return 1, err
	}
	code, err := keep(home, "main", false)
	// Outer removes the folder, unless it is gone.
	if os.Getppid() == 1 || !recordedAlive(home, "outer") {
		err = errors.Join(err, Home(home).remove())
	}
	return code, err
}

func recordedAlive(home, name string) bool {
	for _, id := range recorded(filepath.Join(home, pidsFile))[name] {
		if id.alive() {
			return true
		}
	}
	return false
}

// keep runs this program again in another role, passes signals on, adopts and reaps orphans, and
// ends everything below when the child is done.
func keep(home, role string, outermost bool) (int, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("become a subreaper: %w", err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	child, lifeline, err := startRole(home, role, outermost)
	if err != nil {
		return 1, err
	}
	defer lifeline.Close()

	exited := make(chan int, 1)
	go reapUntil(child, exited)
	end := func(sig unix.Signal) {
		_ = unix.Kill(child, sig) // our own unreaped child: the pid cannot be another's
		time.AfterFunc(graceToEnd+5*time.Second, func() { _ = unix.Kill(child, unix.SIGKILL) })
	}
	if !outermost {
		go func() {
			_, _ = os.NewFile(lifelineFD, "lifeline").Read(make([]byte, 1))
			end(unix.SIGTERM)
		}()
	}
	for {
		select {
		case sig := <-signals:
			end(sig.(syscall.Signal))
		case code := <-exited:
			return code, endDescendants(20 * time.Second)
		}
	}
}

func reapUntil(child int, exited chan<- int) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			exited <- 1
			return
		case pid == child && status.Signaled():
			exited <- 128 + int(status.Signal())
			return
		case pid == child:
			exited <- status.ExitStatus()
			return
		}
	}
}

// startRole starts this program again. The outermost one gives its child a mount namespace; where
// that is forbidden it leaves a note in the folder.
func startRole(home, role string, namespace bool) (pid int, lifeline *os.File, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	read, write, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer read.Close()
	attr := &syscall.ProcAttr{
		Env:   append(os.Environ(), roleEnv+"="+role, homeEnv+"="+home),
		Files: []uintptr{0, 1, 2, read.Fd()},
		Sys:   &syscall.SysProcAttr{},
	}
	if namespace && os.Getenv("VGPU_CLUSTER_IN_PLACE") == "" {
		attr.Sys.Cloneflags = unix.CLONE_NEWNS
	}
	// By its name, not as /proc/self/exe: a keeper whose root changed has that one on another mount.
	executable := os.Getenv(exeEnv)
	if executable == "" {
		if executable, err = os.Executable(); err != nil {
			return 0, nil, errors.Join(err, write.Close())
		}
		attr.Env = append(attr.Env, exeEnv+"="+executable)
	}
	start := func() (int, error) { return syscall.ForkExec(executable, os.Args, attr) }
	if namespace && attr.Sys.Cloneflags == 0 {
		err = unix.EPERM
	} else {
		pid, err = start()
	}
	if namespace && errors.Is(err, unix.EPERM) {
		attr.Sys.Cloneflags = 0
		if err := os.WriteFile(filepath.Join(home, inPlace), nil, 0o644); err != nil {
			return 0, nil, errors.Join(err, write.Close())
		}
		pid, err = start()
	}
	if err != nil {
		return 0, nil, errors.Join(fmt.Errorf("start %s: %w", role, err), write.Close())
	}
	return pid, write, nil
}
