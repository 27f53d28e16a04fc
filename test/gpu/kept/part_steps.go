// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// steps has the first tenant be the one that is looked at, beside one that always has work.
func (t *trial) steps() []trialCase {
	const always = "ms=2"
	waits := func(load string, share float64) trialCase {
		return trialCase{fmt.Sprintf("%s of %.0f beside a batch", load, share), func(t *trial) {
			t.sleeps(want{load: load, share: share}, want{load: always, share: 100 - share})
		}}
	}
	cases := []trialCase{waits("ms=1 host=0.1", 50), waits("ms=1 host=1", 40)}
	if !t.simulated {
		cases = append(cases, waits("torch=decode", 50))
	}
	for _, processes := range []int{1, 4, 16, 64} {
		name := fmt.Sprintf("a job of %d processes, half of them idle, beside one", processes)
		cases = append(cases, trialCase{name, func(t *trial) {
			// Each process takes half a GiB for its context.
			job := want{load: always, share: 50, processes: processes, active: (processes + 1) / 2, options: "--vgpu-mem=50%"}
			t.equal(name, job, want{load: always, share: 50})
		}})
	}
	if !t.simulated { // vgpu-busy has one
		cases = append(cases, trialCase{"ten contexts beside one", func(t *trial) {
			t.equal("ten contexts beside one", want{load: always + " ctxs=10", share: 50, options: "--vgpu-mem=20%"}, want{load: always, share: 50})
		}})
	}
	return cases
}

func (t *trial) equal(name string, wants ...want) {
	all := t.start(wants...)
	letGo(all...)
	t.pause(settling)
	turns := t.turns(all)
	f := t.window(t.seconds, all...)
	near, worst := isNear(f.had, []float64{50, 50}, 1)
	t.row(name, append([]string{verdict(near), fmt.Sprintf("off by %.1f at most", worst)}, append(f.columns(), turns)...)...)
}

// sleeps: who waits for its own steps has its share, as far as it asks for so much alone. By counted kernels, PyTorch's by vgpud.
func (t *trial) sleeps(sleeper, batch want) {
	t.measured(sleeper.load)
	t.measured(batch.load)
	single := t.start(sleeper)
	alone := t.measure(single...)
	t.cancelAll()
	f := t.measure(t.start(sleeper, batch)...)
	asks, had := alone.had[0], f.had[0]
	if kernel(sleeper.load) == sleeper.load && sleeper.load[:2] != "ms" {
		asks, had = alone.byVgpud[0], f.byVgpud[0]
	}
	least := min(sleeper.share, asks) - 1
	t.row(fmt.Sprintf("%s of %.0f beside a batch", sleeper.load, sleeper.share), append([]string{verdict(had >= least && had <= sleeper.share+1),
		fmt.Sprintf("alone %.1f, has %.1f of %.0f", asks, had, sleeper.share)}, f.columns()...)...)
}
