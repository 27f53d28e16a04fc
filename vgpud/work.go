// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/keeper"
)

// await waits for the end of a loop that is to end. A loop that hangs is not waited for: the programs that it holds are let go beside it.
func (n node) await(ended <-chan error, within time.Duration) error {
	select {
	case err := <-ended:
		return err
	case <-time.After(within):
		return errors.Join(errors.New("the loop does not end"), undo(n))
	}
}

// work is the worker.
func work(n node) int {
	beats, life := os.NewFile(beatsFD, "beats"), os.NewFile(lifeFD, "life")
	if _, err := life.Stat(); err != nil || unix.Getppid() == 1 {
		fmt.Fprintln(os.Stderr, "vgpud: a worker is begun by its supervisor alone")
		return exitUsage
	}
	for _, fd := range []int{beatsFD, lifeFD, lockFD} { // nothing that it starts has them
		unix.CloseOnExec(fd)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = life.Read(make([]byte, 1)) // the pipe is never written to: the read ends with the supervisor
	}()
	replaced := make(chan struct{}, 1)
	for {
		stop, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- keeper.Run(stop, beats, n.watched(parts(n), replaced, signals)) }()
		again := false
		var err error
		select {
		case sig := <-signals:
			within := endsWithin / 2
			if again = sig == unix.SIGHUP; again {
				within = readsWithin
			}
			close(stop)
			err = n.await(ended, within)
		case <-gone:
			close(stop)
			err = n.await(ended, endsWithin/2)
		case <-replaced:
			close(stop)
			if err = n.await(ended, readsWithin); err == nil {
				return exitReplaced
			}
		case err = <-ended:
		}
		if err != nil {
			n.log.Error("shares of GPU time are not kept", "reason", err)
			return exitFailed
		}
		if !again {
			return exitOK
		}
		held := config.LoadHeld(n.configPath)
		complain(n.log, held)
		if held.Standing != config.Unknown { // no key falls to its default
			n.cfg = held.Config.ForNode(config.NodeName())
		}
		n.log.Info("the configuration was read again")
	}
}

// watched looks with each change of the node whether this program is still the installed one: jobs that a newer one has started write pages that
// only it can read; and whether config.yaml is what it was, which is as good as SIGHUP: prologs go by the new one.
func (n node) watched(p keeper.Parts, replaced chan<- struct{}, signals chan<- os.Signal) keeper.Parts {
	configured, _ := os.Stat(n.configPath)
	look, another := p.Node, installed()
	p.Node = func() (keeper.Node, error) {
		if another() {
			select {
			case replaced <- struct{}{}:
			default: // it is known
			}
		}
		if now, err := os.Stat(n.configPath); err == nil && !isSame(configured, now) {
			configured = now
			select {
			case signals <- unix.SIGHUP:
			default:
			}
		}
		return look()
	}
	return p
}

// isSame says that a file was neither replaced nor written; was is nil where there was none.
func isSame(was, now os.FileInfo) bool {
	return was != nil && os.SameFile(was, now) && was.ModTime().Equal(now.ModTime()) && was.Size() == now.Size()
}

const procSelf = "/proc/self/exe"

// installed says later whether another program is in the place of this one.
func installed() (another func() bool) {
	self, err := os.Executable()
	if err != nil {
		return func() bool { return false }
	}
	was, err := os.Stat(procSelf)
	if err != nil {
		return func() bool { return false }
	}
	return func() bool {
		now, err := os.Stat(self)
		return err == nil && !os.SameFile(was, now)
	}
}
