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

// within says after how long a process is gone.
func (w *tenant) within(most time.Duration) string {
	began := time.Now()
	select {
	case <-w.ended:
		return fmt.Sprintf("gone after %.2f s", time.Since(began).Seconds())
	case <-time.After(most):
		return fmt.Sprintf("still there after %.0f s", most.Seconds())
	}
}

func (t *trial) breaks() {
	for _, load := range []string{"kind=managed", "kind=free ms=2", "ms=2 ctxs=12", "ms=1 host=1", "kind=copy"} {
		w := t.start(load)
		letGo(w)
		before := w.rate(0.7)
		off := w.off(true)
		time.Sleep(100 * time.Millisecond)
		whileOff := w.rate(1)
		on := w.off(false)
		time.Sleep(100 * time.Millisecond)
		after := w.rate(0.7)
		half := lone{gpu: t.gpu, w: w, share: 0.5, period: 20 * time.Millisecond}
		half.until(time.Now().Add(1500 * time.Millisecond))
		then := w.rate(0.5)
		w.off(true)
		w.close() // no copy of a descriptor is to keep its memory
		syscall.Kill(w.cmd.Process.Pid, syscall.SIGKILL)
		gone := w.within(10 * time.Second)
		time.Sleep(200 * time.Millisecond)
		t.row(load, fmt.Sprintf("%d channels, status of off %#x, on %#x", len(w.channels), off, on),
			fmt.Sprintf("rounds a second %.0f, off %.0f, on %.0f", before, whileOff, after),
			fmt.Sprintf("half the time on, %d calls, and then %.0f", half.calls, then),
			"kill -9 while off: "+gone, fmt.Sprintf("used %d MiB", t.gpu.UsedMiB()))
		t.forget(w)
	}
}

// ends is what becomes of one that is off when something ends.
func (t *trial) ends() {
	w := t.start("ms=2")
	letGo(w)
	time.Sleep(settling)
	w.off(true)
	w.close()
	syscall.Kill(w.cmd.Process.Pid, syscall.SIGTERM)
	t.row("SIGTERM while off", w.within(10*time.Second), fmt.Sprintf("used %d MiB", t.gpu.UsedMiB()))
	t.stop(w)

	w = t.start("ms=2")
	letGo(w)
	time.Sleep(settling)
	w.off(true)
	w.board.Set(gauge.Stop)
	t.row("its time is over while off", w.within(3*time.Second))
	w.off(false)
	t.row("and on again", w.within(5*time.Second))
	t.stop(w)

	w = t.start("ms=2")
	letGo(w)
	time.Sleep(settling)
	w.off(true)
	w.close()
	off := w.rate(1)
	on := w.off(false)
	t.row("who disabled it has no descriptor any more", fmt.Sprintf("kernels a second %.0f, status of on by a new copy %#x, %.0f", off, on, w.rate(0.5)))
	t.stop(w)
}

// stuck disables and enables beside another, and looks each time whether work goes on.
func (t *trial) stuck() {
	for _, loads := range [][]string{{"ms=2", "ms=2"}, {"ms=1 host=0.1", "ms=2"}, {"ms=2"}} {
		all := t.startAll(loads...)
		setSlices(3000, all...)
		letGo(all...)
		time.Sleep(200 * time.Millisecond)
		w := all[0]
		refused, ranWhileOff, notOn, onAfterAnother := 0, 0, 0, 0
		const times = 400
		for i := range times {
			if w.off(true) != 0 {
				refused++
			}
			done := w.board.Done()
			time.Sleep(time.Duration(1000+(i*7919)%9000) * time.Microsecond) // at all moments of a slice
			if w.board.Done() > done+2 {
				ranWhileOff++
			}
			if w.off(false) != 0 {
				refused++
			}
			if !w.goesOn() {
				notOn++
				w.off(false)
				if w.goesOn() {
					onAfterAnother++
				}
			}
		}
		t.row(strings.Join(loads, " + "), fmt.Sprintf("%d times off and on, refused %d, ran while off %d, not on after 60 ms %d, of these after another enable %d",
			times, refused, ranWhileOff, notOn, onAfterAnother))
		t.stop(all...)
	}
}

// goesOn says whether kernels end within 60 ms.
func (w *tenant) goesOn() bool {
	done := w.board.Done()
	for range 120 {
		time.Sleep(500 * time.Microsecond)
		if w.board.Done() > done+1 {
			return true
		}
	}
	return false
}

func (t *trial) checkpoint() {
	drivers := func(w *tenant) string {
		return run(20*time.Second, nil, "python3", t.program("checkpoint.py"), fmt.Sprint(w.cmd.Process.Pid))
	}
	w := t.start("ms=2")
	letGo(w)
	t.row("checkpoint while on", drivers(w), fmt.Sprintf("then %.0f kernels a second", w.rate(0.5)))
	t.row("disabled by the handles from before", fmt.Sprintf("status %#x", w.off(true)))
	w.off(false)
	t.stop(w)
	w = t.start("ms=2")
	letGo(w)
	t.row("off before a checkpoint", fmt.Sprintf("status %#x, %.0f kernels a second", w.off(true), w.rate(0.5)))
	t.row("checkpoint while off", drivers(w))
	w.off(false)
	time.Sleep(200 * time.Millisecond)
	t.row("and on again", fmt.Sprintf("%.0f kernels a second", w.rate(0.5)))
	t.stop(w)
}

// tools are a debugger and profilers, beside a controller.
func (t *trial) tools() {
	for _, argv := range [][]string{
		{"cuda-gdb", "-batch", "-ex", "set breakpoint pending on", "-ex", "break work", "-ex", "run", "-ex", "info cuda kernels", "-ex", "delete", "-ex", "continue", "--args"},
		{"ncu", "--target-processes", "all", "-c", "30", "--set", "full"},
		{"compute-sanitizer"},
	} {
		path, err := exec.LookPath(argv[0])
		if err != nil {
			path = filepath.Join("/usr/local/cuda/bin", argv[0])
			if _, err := os.Stat(path); err != nil {
				t.row(argv[0], "is not here")
				continue
			}
		}
		t.underTool(argv[0], append([]string{path}, argv[1:]...))
	}
}

func (t *trial) underTool(name string, argv []string) {
	shared, boardFile, handlesFile := t.newBoard()
	c := exec.Command(argv[0], append(argv[1:], t.program("tenant"), "file="+boardFile, "ms=2", "depth=2")...)
	c.Env = append(t.watched(handlesFile), t.gpu.Visible())
	var said strings.Builder
	c.Stdout, c.Stderr = &said, &said
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		panic(fmt.Errorf("start %s: %w", name, err))
	}
	shared.Set(gauge.Go)
	calls, refused := controlled(shared, handlesFile, 12*time.Second)
	shared.Set(gauge.Stop)
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	end := ""
	select {
	case err := <-ended:
		end = fmt.Sprintf("ended: %v", err)
	case <-time.After(15 * time.Second):
		end = "did not end in 15 s"
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		<-ended
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	t.row(name, fmt.Sprintf("%d calls, %d refused, %d kernels, %s", calls, refused, shared.Get(gauge.Done), end),
		fmt.Sprintf("says %d lines; the last: %s", len(lines), strings.Join(lines[max(0, len(lines)-4):], " / ")))
}

// controlled has a program off and on, 10 ms each, once it says who it is and its handles are there.
func controlled(shared gauge.Board, handlesFile string, lasts time.Duration) (calls, refused int) {
	var p *owned
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		if pid := int(shared.Get(gauge.PID)); p == nil && pid != 0 {
			if found := newOwned(pid, readHandles(handlesFile)); len(found.channels) >= 8 {
				p = found
				defer p.close()
			}
		}
		if p == nil {
			time.Sleep(every)
			continue
		}
		for _, off := range []bool{true, false} {
			if p.off(off) != 0 {
				refused++
			}
			time.Sleep(10 * time.Millisecond)
			calls++
		}
	}
	return calls, refused
}
