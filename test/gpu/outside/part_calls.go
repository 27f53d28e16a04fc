// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
)

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1e3) }

// calling makes calls so often a second (0: as many as go) until end, which says how many they were and what one took.
func calling(perSecond int, call func(i int) int) (end func() string) {
	began := time.Now()
	var spent time.Duration
	refused := 0
	stop := meanwhile(func(i int) {
		a := time.Now()
		if call(i) != 0 {
			refused++
		}
		took := time.Since(a)
		spent += took
		if perSecond > 0 {
			time.Sleep(time.Second/time.Duration(perSecond) - took)
		}
	})
	return func() string {
		n := stop()
		return fmt.Sprintf("%.0f calls a second, %s each, %d refused", float64(n)/time.Since(began).Seconds(), millis(spent/time.Duration(max(n, 1))), refused)
	}
}

func (t *trial) calls() {
	t.bystander(t.gpu, 3, "bystander alone")()
	w := t.start("ms=2")
	letGo(w)
	t.bystander(t.gpu, 3, "bystander beside one that fills, no calls")()
	disable := func(i int) int { return w.off(i%2 == 0) }
	slice := func(i int) int { return w.slice(2000 + i%2) }
	for _, c := range []struct {
		what      string
		perSecond int
		call      func(int) int
	}{{"disabling", 50, disable}, {"disabling", 500, disable}, {"disabling", 0, disable}, {"time slice", 50, slice}, {"time slice", 0, slice}} {
		end := calling(c.perSecond, c.call)
		t.bystander(t.gpu, 4, fmt.Sprintf("bystander, %s, %d calls a second wanted (0: as many as go)", c.what, c.perSecond))()
		t.row(c.what, end())
		w.off(false)
	}
	t.stop(w)
}

// needsTwo ends a part where there is one GPU.
func (t *trial) needsTwo() {
	if t.other == nil {
		panic(fmt.Errorf("there is no second GPU"))
	}
}

func (t *trial) two() {
	t.needsTwo()
	w := t.start("ms=2")
	letGo(w)
	t.bystander(t.other, 3, "bystander on the other GPU, no calls")()
	for _, perSecond := range []int{50, 200, 500} {
		end := calling(perSecond, func(i int) int { return w.off(i%2 == 0) })
		t.bystander(t.other, 3, fmt.Sprintf("bystander on the other GPU, disabling, %d calls a second wanted", perSecond))()
		t.bystander(t.gpu, 2, fmt.Sprintf("bystander on this GPU, disabling, %d calls a second wanted", perSecond))()
		t.row("disabling", end())
		w.off(false)
	}
	l := openLog(t.gpu)
	end := meanwhile(func(int) { time.Sleep(every); l.poll(true) })
	t.bystander(t.other, 3, "bystander on the other GPU, log and FLUSH 50 a second")()
	end()
	l.close()
	t.stop(w)
}

func (t *trial) many() {
	all := t.floods(8, "ms=2")
	letGo(all...)
	var some []handle
	for _, w := range all {
		some = append(some, w.channels[:min(8, len(w.channels))]...)
	}
	some = some[:min(channels.MostChannels, len(some))]
	first := all[0]
	began := time.Now()
	status := first.disable(true, some)
	took := time.Since(began)
	t.say(fmt.Sprintf("one call for %d channels of 8 processes: status %#x, %s", len(some), status, millis(took)), 1, looking{}, all...)
	began = time.Now()
	status = first.disable(false, some)
	t.row("enabled in one call", fmt.Sprintf("status %#x, %s", status, millis(time.Since(began))))
	for i, w := range all {
		a := time.Now()
		off := w.off(true)
		b := time.Now()
		on := w.off(false)
		t.row(fmt.Sprintf("process %d by itself", i+1), fmt.Sprintf("off %#x, %s", off, millis(b.Sub(a))), fmt.Sprintf("on %#x, %s", on, millis(time.Since(b))))
	}
	// Opening it again gives another open file, which the driver compares.
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", first.pid, first.subdevice.fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	t.row("through /proc/PID/fd", fmt.Sprintf("%v, status %#x", err,
		statusOf(channels.File(fd).Disable(first.subdevice.client, first.subdevice.object, false, asChannels(first.channels[:1])))))
	t.stop(all...)
}

func (t *trial) own() {
	victim := t.start("ms=2")
	letGo(victim)
	l := openLog(t.gpu)
	defer l.close()
	before := victim.rate(0.5)
	began := time.Now()
	off := l.disable(true, victim.channels)
	took := time.Since(began)
	whileOff := victim.rate(0.5)
	on := l.disable(false, victim.channels)
	t.row("own client, no descriptor copied", fmt.Sprintf("off %#x in %s, on %#x", off, millis(took), on),
		fmt.Sprintf("kernels a second %.0f, off %.0f, on %.0f", before, whileOff, victim.rate(0.5)))
	group, theirs := victim.groups[0], victim.channels
	t.row("handles", fmt.Sprintf("client %#x, group %#x, channels %#x %#x … %#x", group.client, group.object,
		theirs[0].object, theirs[1].object, theirs[len(theirs)-1].object))
	l.disable(true, theirs)
	began = time.Now()
	victim.kill()
	t.row("killed while off so", fmt.Sprintf("%.2f s", time.Since(began).Seconds()), fmt.Sprintf("used %d MiB", t.gpu.UsedMiB()))
	t.forget(victim)
}

// nobody is a user who owns none of what is disabled.
const nobody = 65534

func (t *trial) cross() {
	victim := t.start("ms=2")
	letGo(victim)
	attacker := exec.Command(t.program("outside"), "--programs", t.programs, "--gpu", fmt.Sprint(must(t.index())), "--attack", victim.handlesFile)
	attacker.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	attacker.Stdout, attacker.Stderr = os.Stdout, os.Stdout
	if err := attacker.Start(); err != nil {
		panic(fmt.Errorf("start as another user: %w", err))
	}
	for range 20 {
		t.row("the victim meanwhile", fmt.Sprintf("%.0f kernels a second", victim.rate(0.25)))
	}
	if err := attacker.Wait(); err != nil {
		t.row("the other user's program", err.Error())
	}
	t.row("root enables it", fmt.Sprintf("status %#x", victim.off(false)), fmt.Sprintf("%.0f kernels a second", victim.rate(0.5)))
	t.stop(victim)
}

func (t *trial) index() (int, error) {
	index, ret := t.gpu.GetIndex()
	if ret != 0 {
		return 0, fmt.Errorf("NVML index of the GPU: %v", ret)
	}
	return index, nil
}

// attack is what the other user does: his own channels first, then the victim's, as the owner of neither client nor process.
func (t *trial) attack(victimFile string) {
	a := t.start("ms=2")
	var theirs []handle
	for _, h := range readHandles(victimFile) {
		if h.kind == "channel" {
			theirs = append(theirs, h)
		}
	}
	t.row(fmt.Sprintf("as uid %d", os.Getuid()), fmt.Sprintf("own off %#x, on %#x", a.off(true), a.off(false)))
	t.row("another user's channels", fmt.Sprintf("%d, status of off %#x", len(theirs), a.disable(true, theirs[:min(8, len(theirs))])))
	time.Sleep(1500 * time.Millisecond)
	t.row("another user's channels", fmt.Sprintf("status of on %#x", a.disable(false, theirs[:min(8, len(theirs))])))
	t.stop(a)
}
