// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/keeper"
)

// workerWord is the command line of a worker, which only its supervisor can begin.
const workerWord = "worker"

// The descriptors that a worker has from its supervisor.
const (
	beatsFD = 3 // it writes what it does
	lifeFD  = 4 // it reads the end of its supervisor
	lockFD  = 5 // vgpud.lock: no other vgpud begins before this worker has ended too
)

// exitReplaced is what a worker says when another vgpud is installed in the place of this one.
const exitReplaced = 3

// worker is the supervisor's view of a worker.
type worker struct {
	cmd   *exec.Cmd
	beats *os.File
	life  *os.File
	said  chan keeper.Doing // closed when it is silent, or gone
	mute  bool              // it is silent; to be read when said is closed
	ended chan error
}

// The kernel tells a worker of the end of the thread that began it, which has to be the first one: that ends with us. A goroutine that is locked in
// init is the main one, on the first thread.
func init() { runtime.LockOSThread() }

// supervise begins a worker, and another one when it dies. It does not return while a program is off or frozen, unless that cannot be undone.
func supervise(n node, lock *os.File, systemd *manager) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	replaced := installed()
	beside := beginChores(n)
	letGo(n, keeper.UndoNow) // of an earlier vgpud; the worker thaws steps whose time is not over
	pause := time.Duration(0)
	for {
		began := time.Now()
		w, err := begin(n, lock)
		why := "it could not be begun"
		if err == nil {
			systemd.ready()
			var done bool
			if why, done = w.watch(signals, systemd, beside); done {
				w.end(n)
				systemd.say("STOPPING=1")
				return exitOK
			}
			w.kill()
			letGo(n, keeper.UndoNow)
			err = w.wait()
			if exitCode(err) == exitReplaced || replaced() { // a worker that died could not say so, and the next one would not notice
				n.log.Info("another vgpud is installed, and takes over")
				lock.Close()
				return begunAnew(n)
			}
		}
		if pause = min(longestPause, max(2*pause, firstPause)); time.Since(began) > shortestLife {
			pause = 0
		}
		n.log.Error("the worker has ended, and another one begins", "seen", why, "reason", err, "in_ms", pause.Milliseconds())
		if !wait(pause, signals) {
			letGo(n, keeper.Undo)
			return exitOK
		}
		letGo(n, keeper.UndoNow) // a step's time may be over, and no worker have begun
	}
}

func exitCode(err error) int {
	if code, is := errors.AsType[*exec.ExitError](err); is {
		return code.ExitCode()
	}
	return exitOK
}

// begunAnew starts the program that is installed now, in this process, so systemd sees no change. It does not return.
func begunAnew(n node) int {
	self, err := os.Executable()
	if err == nil {
		err = unix.Exec(self, os.Args, os.Environ()) //nolint:forbidigo // it is to have what we have
	}
	n.log.Error("another vgpud is installed, and cannot be begun", "reason", err)
	return exitFailed
}

// wait is false after a signal to end.
func wait(pause time.Duration, signals <-chan os.Signal) bool {
	over := time.After(pause)
	for {
		select {
		case <-over:
			return true
		case sig := <-signals:
			if sig != unix.SIGHUP { // the next worker reads the configuration anyway
				return false
			}
		}
	}
}

func letGo(n node, undo func(path, bootID string, enabler keeper.Enabler) error) {
	if err := undo(n.cfg.Run().VgpudOff(), n.store.BootID, enabler(n.cfg)); err != nil {
		n.log.Error("vgpud has not let go of all that it held", "reason", err)
	}
}

func begin(n node, lock *os.File) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("begin a worker: %w", err)
	}
	beats, beatsEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("begin a worker: %w", err)
	}
	defer beatsEnd.Close()
	lifeEnd, life, err := os.Pipe()
	if err != nil {
		beats.Close()
		return nil, fmt.Errorf("begin a worker: %w", err)
	}
	defer lifeEnd.Close()
	cmd := exec.Command(self, "--config", n.configPath, workerWord) //nolint:noctx // it is ended by a signal
	cmd.Stderr = os.Stderr
	cmd.Env = environment()
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{beatsFD - 3: beatsEnd, lifeFD - 3: lifeEnd, lockFD - 3: lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if err := cmd.Start(); err != nil {
		beats.Close()
		life.Close()
		return nil, fmt.Errorf("begin a worker: %w", err)
	}
	w := &worker{cmd: cmd, beats: beats, life: life, said: make(chan keeper.Doing, 64), ended: make(chan error, 1)}
	go w.listen()
	go func() { w.ended <- cmd.Wait() }()
	return w, nil
}

// environment is the part of the environment that a worker needs: the node's name.
func environment() []string {
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, name := range []string{"SLURM_CONF", "SLURMD_NODENAME"} {
		if value := os.Getenv(name); value != "" { //nolint:forbidigo // %n in the configuration needs it
			env = append(env, name+"="+value)
		}
	}
	return env
}

// listen ends when the worker has said nothing for longer than it may, or is gone.
func (w *worker) listen() {
	defer close(w.said)
	var word [64]byte
	doing := keeper.Working // until it says something else
	var sent time.Time
	for {
		deadline := time.Time{}
		if silence := doing.Silence(); silence > 0 {
			deadline = time.Now().Add(silence)
		}
		if w.beats.SetReadDeadline(deadline) != nil {
			return
		}
		n, err := w.beats.Read(word[:])
		// Where we are late ourselves the word may be there all the same.
		if errors.Is(err, os.ErrDeadlineExceeded) && w.beats.SetReadDeadline(time.Now().Add(lateWord)) == nil {
			n, err = w.beats.Read(word[:])
		}
		if err != nil {
			w.mute = errors.Is(err, os.ErrDeadlineExceeded)
			return
		}
		if bytes.IndexByte(word[:n], byte(keeper.JobEnded)) >= 0 {
			w.said <- keeper.JobEnded
		}
		// Each word would wake the first thread, to which watch is bound.
		if now := keeper.Doing(word[n-1]); now != doing || time.Since(sent) >= sentEach {
			doing, sent = now, time.Now()
			w.said <- doing
		}
	}
}

// watch returns when the worker is gone or silent, or, done, after a signal to end.
func (w *worker) watch(signals <-chan os.Signal, systemd *manager, beside *chores) (why string, done bool) {
	for {
		select {
		case doing, ok := <-w.said:
			if !ok {
				systemd.alive(time.Now(), true) // a driver that hangs, and the pause before another worker, may outlast the time that systemd waits
				if w.mute {
					return "it says nothing any more", false
				}
				return "it is gone", false
			}
			beside.hear(doing)
			if doing != keeper.JobEnded {
				systemd.alive(time.Now(), doing.Silence() == 0)
			}
		case now := <-systemd.next():
			systemd.alive(now, false)
		case sig := <-signals:
			if sig != unix.SIGHUP {
				return "", true
			}
			_ = w.cmd.Process.Signal(unix.SIGHUP) // one that is gone begins with the new configuration
		}
	}
}

// end has the worker undo what it holds, and does it where the worker does not.
func (w *worker) end(n node) {
	_ = w.cmd.Process.Signal(unix.SIGTERM)
	select {
	case err := <-w.ended:
		w.ended <- err
	case <-time.After(endsWithin):
	}
	w.kill()
	letGo(n, keeper.Undo)
	_ = w.wait()
}

func (w *worker) kill() { _ = w.cmd.Process.Kill() }

// wait is for the end of a worker that was killed; the kernel lets one that is in the driver end only when that returns.
func (w *worker) wait() error {
	err := <-w.ended
	for range w.said { // until listen has ended
	}
	w.beats.Close()
	w.life.Close()
	return err
}
