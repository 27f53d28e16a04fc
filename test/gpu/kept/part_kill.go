// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// killers are jobs that kill at once.
const (
	killers  = 4
	ofKiller = 12.0 // percent
)

func (t *trial) kill() []trialCase {
	return []trialCase{{"programs", (*trial).killPrograms}, {"vgpud", func(t *trial) { t.killVgpud("vgpud", false) }}, {"memory", (*trial).memoryBack},
		{"vgpud and programs", func(t *trial) { t.killVgpud("vgpud and programs", true) }}}
}

// killPrograms has programs start, work for up to half a second and be killed, beside one that lives.
func (t *trial) killPrograms() {
	t.measured("ms=2")
	base := t.usedMiB()
	lives := t.start(want{load: "ms=2 for=1000", share: 20})[0]
	letGo(lives)
	all := t.beginKillers()
	began, worked := time.Now(), uint64(0)
	hung := 0
	for !t.comes(time.Second, func() bool { return t.allSay(all, "killed") }) {
		if before := worked; lives.done() == before {
			hung++
		}
		worked = lives.done()
		if time.Since(began).Seconds() > t.most {
			break
		}
	}
	killed := killedBy(all)
	t.row("programs", verdict(killed >= t.kills && hung == 0), fmt.Sprintf("%d killed in %.0f s, who lived stood still in %d s of it", killed, time.Since(began).Seconds(), hung))
	t.after("programs", base)
}

// beginKillers begins jobs that start programs and kill them.
func (t *trial) beginKillers() (all []*job) {
	each := (t.kills + killers - 1) / killers
	seconds := "0.$((RANDOM % 5 + 5))" // a context takes some of it
	if t.simulated {
		seconds = "0.0$((RANDOM % 10))"
	}
	for range killers {
		board, name := t.newBoard(t.like["ms=2"])
		board.Set(gauge.Go)
		j := &job{boards: []gauge.Board{board}}
		t.submitScript(j, want{share: ofKiller}.slice(), fmt.Sprintf("#!/bin/bash\nfor ((i = 0; i < %d; i++)); do %s & sleep %s; kill -9 $!; wait $! 2> /dev/null; done\necho killed $i\n",
			each, t.command("ms=2", name), seconds))
		all = append(all, j)
	}
	return all
}

func killedBy(all []*job) (count int) {
	for _, j := range all {
		n, _ := strconv.Atoi(strings.TrimPrefix(j.says(), "killed "))
		count += n
	}
	return count
}

func (t *trial) allSay(all []*job, word string) bool {
	for _, j := range all {
		if !strings.Contains(j.says(), word) {
			return false
		}
	}
	return true
}

// after looks at what is left when all jobs have ended.
func (t *trial) after(what string, baseMiB uint64) {
	t.cancelAll()
	free := t.comes(5*time.Second, func() bool { return t.usedMiB() <= baseMiB })
	nothing := t.comes(5*time.Second, func() bool { return t.off() == "" })
	t.row(what+": left", verdict(free && nothing), fmt.Sprintf("%d MiB of the GPU, %d before", t.usedMiB(), baseMiB), "off or frozen: "+t.off())
}

// killVgpud kills the worker, the parent, or both, each second. Three tenants of which one waits for its steps, so that others are off by turns.
func (t *trial) killVgpud(what string, programs bool) {
	t.measured("ms=2")
	t.measured("ms=1 host=1")
	base := t.usedMiB()
	all := t.start(want{load: "ms=1 host=1 for=2000", share: 10}, want{load: "ms=1 for=2000", share: 15}, want{load: "ms=1 for=2000", share: 25})
	letGo(all...)
	t.pause(settling)
	before := t.window(t.seconds, all...)
	t.row(what+": before", append([]string{"baseline"}, before.columns()...)...)
	var killers []*job
	if programs {
		killers = t.beginKillers()
	}
	began, kills, hung, absent := time.Now(), map[string]int{}, 0, 0
	var counters []uint64
	for _, j := range all {
		counters = append(counters, t.counted(j).BusyNs)
	}
	backwards := 0
	for i := 0; time.Since(began).Minutes() < t.minutes; i++ {
		if t.killOne(i, kills) {
			absent++
		}
		var done []uint64
		for _, j := range all {
			done = append(done, j.done())
		}
		t.pause(time.Second)
		for k, j := range all {
			if j.done() == done[k] {
				hung++
			}
			if is := t.counted(j).BusyNs; is < counters[k] {
				backwards++
			} else {
				counters[k] = is
			}
		}
	}
	t.row(what, verdict(hung == 0 && backwards == 0), fmt.Sprintf("killed in %.1f minutes: %v; begun again %d times", time.Since(began).Minutes(), kills, absent),
		fmt.Sprintf("a tenant stood still in %d seconds, a counter went back %d times", hung, backwards))
	if programs {
		t.until("the killers' end", time.Minute, func() bool { return t.allSay(killers, "killed") })
		t.row(what, fmt.Sprintf("%d programs killed meanwhile", killedBy(killers)))
	}
	t.prologAgain()
	t.pause(settling)
	t.row(what+": afterwards", append([]string{""}, t.window(t.seconds, all...).columns()...)...)
	t.after(what, base)
}

// killOne kills the worker, the parent or both in turn, and says whether there was none to be killed.
func (t *trial) killOne(turn int, kills map[string]int) (absent bool) {
	if parent, worker := t.vgpuds(); parent == 0 && worker == 0 { // whose supervisor was killed has ended
		absent = true
		t.prologAgain()
	}
	parent, worker := t.vgpuds()
	switch turn % 3 {
	case 0:
		kills["worker"] += killed(worker)
	case 1:
		kills["parent"] += killed(parent)
	case 2: // who undoes then is systemd or, as here, the next prolog's vgpud
		kills["both"] += max(killed(parent), killed(worker))
		t.prologAgain()
	}
	return absent
}

func killed(pid int) int {
	if pid == 0 || unix.Kill(pid, unix.SIGKILL) != nil {
		return 0
	}
	return 1
}

// prologAgain begins a vgpud that is not there: the prolog of any job with a slice does.
func (t *trial) prologAgain() {
	t.asUser("srun --gres=vgpu:1 --vgpu-place=pack --vgpu-mem=1% true")
}

func (t *trial) asUser(line string) string {
	result := t.Cluster.Run(t.ctx, t.Users[0], line)
	if result.Code != 0 {
		t.row("STOPPED", result.String())
	}
	return strings.TrimSpace(result.Stdout)
}

// laterThanNative is how much later than without slurm-vgpu the memory of who is killed may be back.
const laterThanNative = 50 * time.Millisecond

// memoryBack has one of two programs killed: without slurm-vgpu, in slices, and in slices while vgpud is stopped.
func (t *trial) memoryBack() {
	t.measured("ms=2")
	var baseline time.Duration
	for _, way := range []string{"native", "in slices", "in slices, vgpud stopped"} {
		var took []time.Duration
		for range 3 {
			took = append(took, t.memoryBackIn(way))
		}
		slices.Sort(took)
		said := verdict(took[2] <= max(100*time.Millisecond, baseline+laterThanNative))
		if baseline == 0 {
			baseline, said = took[1], "baseline"
		}
		t.row("memory, "+way, said, fmt.Sprintf("back after %v", took))
	}
}

func (t *trial) memoryBackIn(way string) time.Duration {
	base := t.usedMiB()
	var boards []gauge.Board
	end := t.cancelAll
	if way == "native" {
		boards, end = t.native(2)
	} else {
		all := t.start(want{load: "ms=2", share: 50}, want{load: "ms=2", share: 50})
		letGo(all...)
		for _, j := range all {
			boards = append(boards, j.boards...)
		}
	}
	defer end()
	t.pause(settling)
	if strings.HasSuffix(way, "stopped") {
		t.signalVgpud(unix.SIGSTOP)
		defer t.signalVgpud(unix.SIGCONT)
	}
	const about = 8 // MiB
	left := base + (t.usedMiB()-base)/uint64(len(boards)) + about
	killed(int(boards[0].Get(gauge.PID)))
	began := time.Now()
	if !t.comes(2*time.Second, func() bool { return t.usedMiB() <= left }) {
		return time.Hour
	}
	return time.Since(began).Round(time.Millisecond)
}
