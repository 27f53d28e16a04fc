// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
)

// every is how often the log is read in most parts.
const every = 20 * time.Millisecond

func reading(l *switchLog) looking { return looking{log: l, period: every} }

func (t *trial) smoke() {
	a, b := t.start("ms=2"), t.start("ms=2")
	t.row("a kernel of each alone", fmt.Sprintf("%.3f and %.3f ms", a.board.KernelMS(), b.board.KernelMS()))
	t.row("handles", fmt.Sprintf("%d groups, %d channels", len(a.groups), len(a.channels)))
	t.row("status of slices of 3 and 7 ms", fmt.Sprintf("%#x %#x", a.setSlice(3000), b.setSlice(7000)))
	l := openLog(t.gpu)
	defer l.close()
	t.say("two of 3 and 7 ms", 2, reading(l), a, b)
	lengths := l.lengthsUS[a.logPID()]
	t.row("turns of the first in us", fmt.Sprint(lengths[:min(20, len(lengths))]))
	t.row("status of off", fmt.Sprintf("%#x", a.off(true)))
	t.say("the first is off", 1, reading(l), a, b)
	t.row("status of on", fmt.Sprintf("%#x", a.off(false)), a.saves())
	t.stop(a, b)
	alone := t.start("ms=1 host=1")
	t.say("one alone that waits for each step", 2, reading(l), alone)
	t.stop(alone)
}

func (t *trial) logs() {
	for _, n := range []int{2, 4, 10} {
		all := t.floods(n, "ms=2")
		setSlices(2000, all...)
		letGo(all...)
		wait := t.bystander(t.gpu, 2.5, fmt.Sprintf("bystander of %d tenants, no log", n))
		t.say(fmt.Sprintf("%d tenants, no log", n), 2.8, looking{}, all...)
		wait()
		l := openLog(t.gpu)
		wait = t.bystander(t.gpu, 2.5, fmt.Sprintf("bystander of %d tenants, log and FLUSH 50 a second", n))
		t.say(fmt.Sprintf("%d tenants, log and FLUSH 50 a second", n), 2.8, reading(l), all...)
		wait()
		if n == 10 {
			setSlices(300, all...)
			t.say("10 tenants of 0.3 ms, log and FLUSH 50 a second", 2, reading(l), all...)
		}
		l.close()
		t.stop(all...)
	}
}

// meanwhile does something again and again until it is told to end.
func meanwhile(do func(i int)) (end func() int) {
	stop, ended := make(chan struct{}), make(chan int)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				ended <- i
				return
			default:
				do(i)
			}
		}
	}()
	return func() int { close(stop); return <-ended }
}

func (t *trial) flush() {
	all := t.floods(2, "ms=2")
	setSlices(2000, all...)
	letGo(all...)
	on := t.gpu
	if t.other != nil {
		on = t.other // the buffers of all GPUs are read at a FLUSH
	}
	for round := 1; round <= 2; round++ {
		t.bystander(on, 2.5, fmt.Sprintf("bystander, no log, round %d", round))()
		for _, perSecond := range []int{0, 5, 50} {
			l := openLog(t.gpu)
			end := meanwhile(func(int) {
				time.Sleep(time.Second / time.Duration(max(perSecond, 5)))
				l.poll(perSecond > 0)
			})
			t.bystander(on, 2.5, fmt.Sprintf("bystander, log, %d FLUSH a second (0: read 5 a second), round %d", perSecond, round))()
			end()
			t.row("the log meanwhile", fmt.Sprintf("%d records, lost %d, dropped %d", l.Records, l.Lost, l.dropped))
			l.close()
		}
	}
	t.stop(all...)
}
