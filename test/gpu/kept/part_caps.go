// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

const (
	capsSettle  = 2 * time.Second
	capsWindow  = 4 // seconds
	capsPoints  = 1.0
	capsASecond = 5.0
	capsDying   = 2.0
	nativePart  = 0.995
)

// capped gives one job with a cap for each share.
func capped(load string, shares ...float64) (all []want) {
	for _, share := range shares {
		all = append(all, want{load: load, share: share, options: fmt.Sprintf("--vgpu-cores=%.0f", share)})
	}
	return all
}

// caps are held alone and beside others, for some seconds each.
func (t *trial) caps() (cases []trialCase) {
	for _, load := range []string{"ms=2", "ms=0.1 depth=16", "ms=20", "ms=40"} {
		cases = append(cases, trialCase{"alone, " + load, func(t *trial) { t.loneCaps(load, 25, 50, 75, 90, 10) }})
	}
	beside := func(name string, wants []want) {
		cases = append(cases, trialCase{name, func(t *trial) { t.capsBeside(name, wants) }})
	}
	cases = append(cases, trialCase{"below its cap", func(t *trial) { t.belowItsCap("") }}, trialCase{"vgpud dies", func(t *trial) { t.capWhileVgpudDies(12) }})
	beside("25 beside one that is idle", append(capped("ms=2", 25), want{load: "ms=2", share: 50, active: -1}))
	beside("25 beside a batch without a cap", append(capped("ms=2", 25), want{load: "ms=2"}))
	beside("50 beside one that asks for a sixth", append(capped("ms=2", 50), want{load: "ms=1 host=5", share: 50}))
	beside("25 and 25", capped("ms=2", 25, 25))
	beside("10 and 90", capped("ms=2", 10, 90))
	beside("30 of 20 ms and 50 of 0.1", append(capped("ms=20", 30), capped("ms=0.1 depth=16", 50)...))
	beside("four of 25", capped("ms=2", 25, 25, 25, 25))
	beside("25 that sleeps beside a batch without a cap", append(capped("ms=1 host=1", 25), want{load: "ms=2"}))
	ten := func(share float64) []want {
		return capped("ms=2", share, share, share, share, share, share, share, share, share, share)
	}
	beside("ten of 10, which fill the GPU", ten(10))
	beside("ten of 8, which do not", ten(8))
	return append(cases, trialCase{"below its cap, on one core", func(t *trial) { t.belowItsCap("taskset -c 1 %s") }},
		trialCase{"vgpud dies, for --minutes", func(t *trial) { t.capWhileVgpudDies(int(60 * t.minutes)) }})
}

// overSeconds measures second by second: what each had in all, and how far it was off its cap in a second at most.
func (t *trial) overSeconds(seconds int, all ...*job) (f figures, worst []float64) {
	worst = make([]float64, len(all))
	done := make([]uint64, len(all))
	for i, j := range all {
		done[i] = j.done()
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for at := time.Now(); ; {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
			}
			gone := time.Since(at).Seconds()
			at = time.Now()
			for i, j := range all {
				now := j.done()
				worst[i] = max(worst[i], math.Abs(100*float64(now-done[i])*j.kernelMS()/1e3/gone-j.share))
				done[i] = now
			}
		}
	}()
	f = t.window(float64(seconds), all...)
	close(stop)
	<-ended
	return f, worst
}

// loneCaps has one job whose cap is changed while it runs.
func (t *trial) loneCaps(load string, shares ...float64) {
	j := t.start(capped(load, shares[0])...)[0]
	letGo(j)
	t.pause(time.Second)
	for _, share := range shares {
		t.setCap(j, share)
		t.pause(capsSettle)
		f, worst := t.overSeconds(capsWindow, j)
		had := f.gpm // the longer kernels are few in some seconds
		said := fmt.Sprintf("off by %.1f by GPM, by %.1f in a second by its kernels", had-share, worst[0])
		met := math.Abs(had-share) <= capsPoints && (worst[0] <= capsASecond || j.kernelMS() > 5)
		t.row(fmt.Sprintf("%s alone, cap %.0f", load, share), append([]string{verdict(met), said}, f.columns()...)...)
	}
}

func (t *trial) setCap(j *job, share float64) {
	j.share = share
	t.asRoot(fmt.Sprintf("vgpuctl --config %s --node %s set %d --cores %.0f", t.ConfigOf(node), node, j.id, share))
}

// capsBeside holds those with a cap to it, where weights do not give them less.
func (t *trial) capsBeside(name string, wants []want) {
	all := t.start(wants...)
	var active []*job
	for i, w := range wants {
		if w.active < 0 {
			all[i].active = 0
		} else {
			active = append(active, all[i])
		}
	}
	letGo(active...)
	t.pause(capsSettle + time.Second)
	f, worst := t.overSeconds(capsWindow, all...)
	met, said := true, ""
	for i, w := range wants {
		if strings.Contains(w.options, "--vgpu-cores") {
			least := w.share - capsPoints
			if f.gpm > full {
				least = w.share*0.95 - capsPoints // what switches take
			}
			met = met && f.had[i] <= w.share+capsPoints && f.had[i] >= least && worst[i] <= capsASecond+2
			said += fmt.Sprintf("cap %.0f: off by %+.1f, in a second by %.1f at most; ", w.share, f.had[i]-w.share, worst[i])
		}
	}
	t.row(name, append([]string{verdict(met), said}, f.columns()...)...)
}

// belowItsCap measures by turns with its cap and with none: steps of 1 ms and pauses of 3 have a quarter of the GPU.
func (t *trial) belowItsCap(around string) {
	wants := capped("ms=1 host=3", 40)
	wants[0].around = around
	j := t.start(wants...)[0]
	letGo(j)
	held, free := []float64{}, []float64{}
	for range 3 {
		t.setCap(j, 40)
		t.pause(capsSettle)
		held = append(held, t.window(2, j).had[0])
		t.setCap(j, 0)
		t.pause(time.Second / 2)
		free = append(free, t.window(2, j).had[0])
	}
	part := sum(held) / sum(free)
	t.row("ms=1 host=3, cap 40, alone "+around, verdict(part >= nativePart), fmt.Sprintf("%.2f %% of native", 100*part), "with its cap "+percents(held)+", with none "+percents(free))
}

// capWhileVgpudDies kills the worker each second, beside one that is alone.
func (t *trial) capWhileVgpudDies(seconds int) {
	j := t.start(capped("ms=2", 50)...)[0]
	letGo(j)
	t.pause(capsSettle)
	done, began, deaths := j.done(), time.Now(), 0
	sample := t.gpu().Sample()
	for range seconds {
		if _, worker := t.vgpuds(); worker != 0 {
			deaths += killed(worker)
		}
		t.pause(time.Second)
	}
	gone := time.Since(began).Seconds()
	had := 100 * float64(j.done()-done) * j.kernelMS() / 1e3 / gone
	t.row(fmt.Sprintf("cap 50 alone, vgpud killed each second for %.0f s", gone), verdict(math.Abs(had-50) <= capsDying), fmt.Sprintf("%d deaths, had %.1f, GPM %.1f", deaths, had, t.gpu().Engine(sample, t.gpu().Sample())),
		strings.Join(t.logged(0)[max(0, len(t.logged(0))-2):], "; "))
	t.row("cap 50 alone, afterwards", append([]string{""}, t.window(capsWindow, j).columns()...)...)
}
