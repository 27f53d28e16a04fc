// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// measured is what some tenants had in the same seconds.
type measured struct {
	seconds           float64
	counted, resident []float64 // percent of the GPU; resident by the log
	gpm, cpu          float64   // percent; cpu is this program's, of one core
	switches          int
	requests          []int
	p50MS, p99MS      []float64
	log               *switchLog
}

// looking is what goes on while a measurement runs: the log is read each period, and then each is called.
type looking struct {
	log    *switchLog
	period time.Duration
	each   func()
}

func (k looking) once() {
	if k.log != nil {
		k.log.poll(true)
	}
	if k.each != nil {
		k.each()
	}
}

func (k looking) until(end time.Time) {
	if k.log == nil && k.each == nil {
		time.Sleep(time.Until(end))
		return
	}
	for time.Now().Before(end) {
		began := time.Now()
		k.once()
		time.Sleep(k.period - time.Since(began))
	}
}

func cpuTime() time.Duration {
	var usage unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// settling is how long tenants run before they are measured.
const settling = 300 * time.Millisecond

// measure lets tenants go and counts for some seconds.
func (t *trial) measure(seconds float64, looking looking, all ...*tenant) measured {
	letGo(all...)
	for end := time.Now().Add(settling); time.Now().Before(end); time.Sleep(max(looking.period, time.Millisecond)) {
		looking.once()
	}
	l := looking.log
	var resident map[uint32]int64
	var logNS int64
	records := 0
	if l != nil {
		logNS = l.clockNS()
		resident, records = l.Total(logNS), l.Records
	}
	sample, cpu, began := t.gpu.Sample(), cpuTime(), time.Now()
	var done, requests []uint64
	for _, w := range all {
		done, requests = append(done, w.board.Done()), append(requests, w.board.Get(gauge.Requests))
	}
	looking.until(began.Add(ofSeconds(seconds)))

	m := measured{seconds: time.Since(began).Seconds(), log: l}
	for i, w := range all {
		m.counted = append(m.counted, 100*float64(w.board.Done()-done[i])*w.board.KernelMS()/1e3/m.seconds)
		n, p50, p99 := w.board.Latencies(requests[i])
		m.requests, m.p50MS, m.p99MS = append(m.requests, n), append(m.p50MS, p50), append(m.p99MS, p99)
	}
	m.cpu = 100 * (cpuTime() - cpu).Seconds() / m.seconds
	m.gpm = t.gpu.Engine(sample, t.gpu.Sample())
	if l != nil {
		l.poll(true)
		now := l.clockNS()
		total := l.Total(now)
		for _, w := range all {
			m.resident = append(m.resident, 100*float64(total[w.logPID()]-resident[w.logPID()])/float64(now-logNS))
		}
		m.switches = (l.Records - records) / 2
	}
	return m
}

func percents(all []float64) string {
	var said []string
	for _, x := range all {
		said = append(said, fmt.Sprintf("%.1f", x))
	}
	return strings.Join(said, " ")
}

func sum(all []float64) (total float64) {
	for _, x := range all {
		total += x
	}
	return total
}

// columns are the measurement's part of a line of the table.
func (m measured) columns() []string {
	said := []string{fmt.Sprintf("counted %s, in all %.1f", percents(m.counted), sum(m.counted))}
	if m.log != nil {
		said = append(said, "resident "+percents(m.resident),
			fmt.Sprintf("%d switches, lost %d, dropped %d, unlooked %d", m.switches, m.log.Lost, m.log.dropped, m.log.unlooked+m.log.Unexpected))
	}
	said = append(said, fmt.Sprintf("GPM %.1f", m.gpm), fmt.Sprintf("cpu %.1f", m.cpu))
	for i, n := range m.requests {
		if n > 0 {
			said = append(said, fmt.Sprintf("requests/s %.0f, p50 %.2f, p99 %.2f ms", float64(n)/m.seconds, m.p50MS[i], m.p99MS[i]))
		}
	}
	return said
}

// say measures and writes the line.
func (t *trial) say(what string, seconds float64, looking looking, all ...*tenant) {
	t.row(what, t.measure(seconds, looking, all...).columns()...)
}

// row is one line of the table.
func (t *trial) row(what string, columns ...string) {
	fmt.Printf("| %s | %s | %s |\n", t.part, what, strings.Join(columns, " | "))
}

// run gives what a program said, which is killed when it takes too long.
func run(most time.Duration, env []string, name string, args ...string) string {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), env...)
	var said strings.Builder
	c.Stdout, c.Stderr = &said, &said
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return err.Error()
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			fmt.Fprintf(&said, "(%v)", err)
		}
	case <-time.After(most):
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		<-ended
		said.WriteString("(took too long: killed)")
	}
	return strings.Join(strings.Fields(said.String()), " ")
}

// bystander allocates and frees for some seconds; who calls the answer waits for its line.
func (t *trial) bystander(on *gauge.GPU, seconds float64, what string) (wait func()) {
	said := make(chan string, 1)
	go func() {
		said <- run(ofSeconds(seconds+30), []string{on.Visible()}, "python3", t.program("bystander.py"), fmt.Sprint(seconds))
	}()
	return func() { t.row(what, <-said) }
}
