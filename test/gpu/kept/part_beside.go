// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

const (
	tenBeside   = 10
	lookSeconds = 12.0
	mostCPU     = 2.0 // percent of a core
	rounds      = 2   // of each way, by turns

	inSliceRuns    = 3
	inSliceSeconds = 1.0
)

// beside holds what others on the node wait for, beside ten tenants in slices, against the same tenants without Slurm and vgpud.
func (t *trial) beside() []trialCase {
	return []trialCase{{"idle", (*trial).idleCPU}, {"ten slices", (*trial).besideTen}}
}

// idleCPU is of a vgpud whose slices do nothing, and of one without slices.
func (t *trial) idleCPU() {
	used := func(what string) {
		t.pause(settling)
		before, began := t.vgpudCPU(), time.Now()
		t.pause(20 * time.Second)
		percent := 100 * (t.vgpudCPU() - before).Seconds() / time.Since(began).Seconds()
		t.row(what, verdict(percent < 0.1), fmt.Sprintf("vgpud %.2f %% of a core", percent))
	}
	t.start(elastic("ms=2", 50, 50)...)
	used("two slices without work")
	t.cancelAll()
	used("no slice")
}

// waited is what one way of a round took, in milliseconds: medians, and for the context that a program begins with.
type waited struct{ alloc, context, first, smi float64 }

// inSlice are the figures of who has a slice of the first GPU, beside those of GPUs by their number.
const inSlice = -1

func (t *trial) besideTen() {
	native, kept := map[int][]waited{}, map[int][]waited{}
	cpu := 0.0
	t.measured("ms=2")
	for range rounds {
		_, end := t.native(tenBeside)
		t.lookOn(native)
		end()
		all := t.start(elastic("ms=2", 9, 9, 9, 9, 9, 9, 9, 9, 9, 9)...)
		letGo(all...)
		t.pause(settling)
		before, began := t.vgpudCPU(), time.Now()
		t.lookOn(kept)
		cpu = max(cpu, 100*(t.vgpudCPU()-before).Seconds()/time.Since(began).Seconds())
		for range inSliceRuns {
			kept[inSlice] = append(kept[inSlice], t.bystander("srun --gres=vgpu:1 --vgpu-place=pack --vgpu-mem=2% --vgpu-cores=10 --vgpu-policy=elastic", inSliceSeconds, t.asUser))
		}
		t.cancelAll()
	}
	native[inSlice] = native[0]
	for i := inSlice; i < len(t.gpus); i++ {
		who := fmt.Sprintf("GPU %d, ", i)
		if i == inSlice {
			who = "in a slice, "
		}
		for what, of := range map[string]func(waited) float64{
			"2 MiB taken and freed":   func(w waited) float64 { return w.alloc },
			"a program's own context": func(w waited) float64 { return w.first },
			"one more context":        func(w waited) float64 { return w.context },
			"nvidia-smi":              func(w waited) float64 { return w.smi }} {
			a, b := middle(native[i], of), middle(kept[i], of)
			if a == 0 || b == 0 { // not measured where the GPU is simulated, nor in a slice
				continue
			}
			t.row(who+what, verdict(b <= 1.1*a), fmt.Sprintf("native %.3f ms, beside slices %.3f: %.2f times", a, b, b/a))
		}
	}
	t.row("vgpud", verdict(cpu <= mostCPU), fmt.Sprintf("%.1f %% of a core at most", cpu))
}

func middle(all []waited, of func(waited) float64) float64 {
	var values []float64
	for _, w := range all {
		values = append(values, of(w))
	}
	return median(values)
}

// native are tenants that nobody gives a share, on the first GPU.
func (t *trial) native(count int) (boards []gauge.Board, end func()) {
	ctx, cancel := context.WithCancel(t.ctx)
	var started []*exec.Cmd
	for range count {
		b, name := t.newBoard(t.like["ms=2"])
		c := t.Command(ctx, t.Root(), "exec "+t.command("ms=2", name))
		c.Env = append(c.Env, t.gpus[0].Visible())
		if err := c.Start(); err != nil {
			cancel()
			panic(err)
		}
		started, boards = append(started, c), append(boards, b)
		b.Set(gauge.Go)
	}
	for _, b := range boards {
		t.comes(getsReady, func() bool { return b.Get(gauge.Ready) != 0 })
	}
	return boards, func() {
		for _, b := range boards {
			b.Set(gauge.Stop)
		}
		time.AfterFunc(5*time.Second, cancel)
		for _, c := range started {
			_ = c.Wait()
		}
		cancel()
	}
}

// lookOn lets who stands beside take and free memory and make contexts on each GPU, and asks nvidia-smi meanwhile.
func (t *trial) lookOn(found map[int][]waited) {
	for i, g := range t.gpus {
		w := t.bystander(g.Visible(), lookSeconds, t.asRoot)
		w.smi = t.smi()
		found[i] = append(found[i], w)
	}
}

// bystander runs who stands beside behind these words.
func (t *trial) bystander(behind string, seconds float64, run func(string) string) (w waited) {
	if t.simulated {
		return w
	}
	said := run(fmt.Sprintf("%s timeout 60 %s %s %g 2", behind, t.python, filepath.Join(t.programs, "bystander.py"), seconds))
	var pairs, contexts int
	var p99, most float64
	if n, _ := fmt.Sscanf(said, "allocated and freed %d times, p50 %f p99 %f ms, %d contexts, p50 %f most %f ms, the first %f ms", &pairs, &w.alloc, &p99, &contexts, &w.context, &most, &w.first); n != 7 {
		panic(fmt.Errorf("bystander.py says %q", said))
	}
	return w
}

// smi is the middle of some runs of nvidia-smi, in milliseconds. Outside of slices it is the driver's own.
func (t *trial) smi() float64 {
	var all []float64
	for range 9 {
		began := time.Now()
		t.asRoot("nvidia-smi > /dev/null")
		all = append(all, float64(time.Since(began).Microseconds())/1e3)
	}
	sort.Float64s(all)
	return all[len(all)/2]
}

// off says what vgpud has off or frozen just now: its record, or nothing.
func (t *trial) off() string {
	text, err := os.ReadFile(t.run().VgpudOff())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
