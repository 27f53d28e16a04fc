// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func (t *trial) meter() {
	for _, load := range []string{"ms=2", "ms=0.1", "ms=20", "ms=1 host=1", "ms=1 host=5", "ms=1 host=0.2", "ms=0.1 host=0.1", "ms=0.3 host=3 jit=1"} {
		t.meterAlone(load)
	}
	began := time.Now()
	for range 200 {
		t.gpu.Sample()
	}
	t.row("a GPM sample takes", fmt.Sprintf("%.0f us", float64(time.Since(began).Microseconds())/200))
	copies := t.start("kind=copy")
	t.say("copies alone", 2, looking{}, copies)
	t.stop(copies)
	for _, loads := range [][]string{{"ms=1 host=1", "ms=1 host=1"}, {"ms=1 host=5", "ms=1 host=5"}, {"ms=1 host=5", "ms=0.3 host=3"},
		{"ms=1 host=1", "ms=2"}, {"ms=1 host=5", "ms=0.1"}, {"ms=0.1 host=0.1", "ms=2"}, {"ms=1 host=0.2", "ms=1 host=1", "ms=2"}} {
		all := t.startAll(loads...)
		l := openLog(t.gpu)
		t.say(strings.Join(loads, " + "), 2.5, reading(l), all...)
		l.close()
		t.stop(all...)
	}
	// The probe is tiny work without end, of a short slice: who is idle leaves at once.
	for _, load := range []string{"ms=1 host=5", "ms=1 host=1", "ms=2"} {
		w, probe := t.start(load), t.start("ms=0.02 depth=2")
		probe.setSlice(200)
		w.setSlice(20000)
		l := openLog(t.gpu)
		t.say(load+" + a probe", 2.5, reading(l), w, probe)
		l.close()
		t.stop(w, probe)
	}
}

// meterAlone holds GPM against counted kernels, in windows of several lengths.
func (t *trial) meterAlone(load string) {
	w := t.start(load)
	letGo(w)
	time.Sleep(settling)
	for _, windowMS := range []int{10, 20, 50, 100, 200} {
		var worst, squares float64
		n := max(5, 1000/windowMS)
		sample, done, at := t.gpu.Sample(), w.board.Done(), time.Now()
		first, firstDone, began := sample, done, at
		for range n {
			time.Sleep(time.Duration(windowMS) * time.Millisecond)
			last, doneNow, now := t.gpu.Sample(), w.board.Done(), time.Now()
			counted := 100 * float64(doneNow-done) * w.board.KernelMS() / 1e3 / now.Sub(at).Seconds()
			off := math.Abs(t.gpu.Engine(sample, last) - counted)
			squares += off * off
			worst = max(worst, off)
			sample, done, at = last, doneNow, now
		}
		t.row("alone, "+load, fmt.Sprintf("windows of %d ms", windowMS), fmt.Sprintf("counted %.2f", w.percentSince(firstDone, began)),
			fmt.Sprintf("GPM %.2f", t.gpu.Engine(first, sample)), fmt.Sprintf("of one window at most %.1f wrong, root mean square %.1f", worst, math.Sqrt(squares/float64(n))))
	}
	t.stop(w)
}

// nvmlSamples is for GPUs that have no GPM.
func (t *trial) nvmlSamples() {
	for _, load := range []string{"ms=2", "ms=0.1", "ms=1 host=1", "ms=1 host=5", "ms=1 host=0.2", "ms=0.1 host=0.1", "ms=0.3 host=3 jit=1", "ms=0.05 host=1"} {
		w := t.start(load)
		letGo(w)
		time.Sleep(1200 * time.Millisecond)
		sample, done, at := t.gpu.Sample(), w.board.Done(), time.Now()
		time.Sleep(4 * time.Second)
		counted := w.percentSince(done, at)
		gpm := t.gpu.Engine(sample, t.gpu.Sample())
		_, samples, ret := t.gpu.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, uint64(at.UnixMicro()))
		total, least, most := 0.0, math.Inf(1), math.Inf(-1)
		for _, s := range samples {
			value := float64(binary.LittleEndian.Uint32(s.SampleValue[:4]))
			total += value
			least, most = min(least, value), max(most, value)
		}
		t.row("alone, "+load, fmt.Sprintf("counted %.2f", counted), fmt.Sprintf("GPM %.2f", gpm),
			fmt.Sprintf("NVML's mean %.2f, %.0f to %.0f in %d samples (%v)", total/float64(max(1, len(samples))), least, most, len(samples), ret))
		t.stop(w)
	}
}

func (t *trial) torch() {
	index, _ := t.gpu.GetIndex()
	for _, load := range []string{"mlp", "train", "decode", "small"} {
		t.row(load, run(40*time.Second, []string{t.gpu.Visible()}, "python3", t.program("torch_load.py"), load, "2.0", fmt.Sprint(index)))
	}
}
