// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// newBoard makes one, and says where a program's handles will stand.
func (t *trial) newBoard() (shared gauge.Board, boardFile, handlesFile string) {
	t.serial++
	name := filepath.Join(t.scratch, fmt.Sprintf("%d-%d", os.Getpid(), t.serial))
	shared = must(gauge.NewBoard(name+".board", 0o644))
	return shared, name + ".board", name + ".handles"
}

// watched is a program's environment in which its handles are written down.
func (t *trial) watched(handlesFile string) []string {
	return append(os.Environ(), "LD_PRELOAD="+t.program("handles.so"), "HANDLES_FILE="+handlesFile)
}

// tenant is a program that uses the GPU and counts its own kernels.
type tenant struct {
	load        string
	cmd         *exec.Cmd
	ended       chan struct{}
	board       gauge.Board
	handlesFile string
	*owned
	sliceUS int
	let     bool // go
}

// start gives a tenant that has measured its kernel and waits. It measures alone: all are started before one of them is let go.
func (t *trial) start(load string, more ...string) *tenant {
	for _, other := range t.tenants {
		if other.let {
			panic(fmt.Errorf("%q would measure its kernel while %q runs", load, other.load))
		}
	}
	w := &tenant{load: load, ended: make(chan struct{})}
	var boardFile string
	w.board, boardFile, w.handlesFile = t.newBoard()
	w.cmd = exec.Command(t.program("tenant"), append([]string{"file=" + boardFile}, append(strings.Fields(load), more...)...)...)
	w.cmd.Env = append(t.watched(w.handlesFile), t.gpu.Visible())
	w.cmd.Stdout, w.cmd.Stderr = os.Stdout, os.Stdout
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it would wait for ever
	if err := w.cmd.Start(); err != nil {
		panic(fmt.Errorf("start a tenant: %w", err))
	}
	go func() { w.cmd.Wait(); close(w.ended) }()
	t.tenants = append(t.tenants, w)
	for end := time.Now().Add(20 * time.Second); w.board.Get(gauge.Ready) == 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) || w.isGone() {
			panic(fmt.Errorf("tenant %q did not get ready", load))
		}
	}
	w.owned = newOwned(w.cmd.Process.Pid, readHandles(w.handlesFile))
	return w
}

func (t *trial) startAll(loads ...string) (all []*tenant) {
	for _, load := range loads {
		all = append(all, t.start(load))
	}
	return all
}

// floods are some that always have work.
func (t *trial) floods(n int, load string) (all []*tenant) {
	for range n {
		all = append(all, t.start(load))
	}
	return all
}

func (w *tenant) isGone() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

func letGo(all ...*tenant) {
	for _, w := range all {
		w.board.Set(gauge.Go)
		w.let = true
	}
}

// stop ends tenants, by force where they do not end themselves.
func (t *trial) stop(all ...*tenant) {
	for _, w := range all {
		w.board.Set(gauge.Stop)
	}
	for _, w := range all {
		select {
		case <-w.ended:
		case <-time.After(8 * time.Second):
			t.row(w.load, "does not stop: killed")
			w.kill()
		}
		t.forget(w)
	}
}

// kill waits for the end of who is killed.
func (w *tenant) kill() {
	w.cmd.Process.Kill()
	<-w.ended
}

func (t *trial) forget(w *tenant) {
	if w.owned != nil {
		w.close()
	}
	for i, other := range t.tenants {
		if other == w {
			t.tenants = append(t.tenants[:i:i], t.tenants[i+1:]...)
			return
		}
	}
}

// percentSince is of the GPU, by counted kernels.
func (w *tenant) percentSince(done uint64, at time.Time) float64 {
	return 100 * float64(w.board.Done()-done) * w.board.KernelMS() / 1e3 / time.Since(at).Seconds()
}

// rate is in kernels a second.
func (w *tenant) rate(seconds float64) float64 {
	before := w.board.Done()
	time.Sleep(ofSeconds(seconds))
	return float64(w.board.Done()-before) / seconds
}

func ofSeconds(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func (w *tenant) setSlice(us int) int {
	w.sliceUS = us
	return w.slice(us)
}

func setSlices(us int, all ...*tenant) {
	for _, w := range all {
		w.setSlice(us)
	}
}

func (w *tenant) logPID() uint32 { return uint32(w.cmd.Process.Pid) }
