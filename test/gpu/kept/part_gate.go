// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

const (
	gatePoints = 3.0
	ofGate     = 50.0 // what the job may have, which is vgpud's to hold
)

// gate has the library hold steps that may have less than their job.
func (t *trial) gate() (cases []trialCase) {
	for _, load := range []string{"ms=2", "ms=0.1 depth=16", "ms=20"} {
		for _, share := range []float64{10, 25, 40} {
			name := fmt.Sprintf("a step of %.0f, %s, alone", share, load)
			cases = append(cases, trialCase{name, func(t *trial) {
				t.measured(load)
				j := t.start(want{load: load, share: share, options: fmt.Sprintf("--vgpu-cores=%.0f", ofGate), around: fmt.Sprintf("srun --vgpu-cores=%.0f %%s", share)})[0]
				letGo(j)
				t.pause(capsSettle)
				f, worst := t.overSeconds(capsWindow, j)
				off := f.gpm - share
				t.row(name, append([]string{verdict(max(off, -off) <= gatePoints), fmt.Sprintf("off by %+.1f by GPM, by %.1f in a second by its kernels", off, worst[0])}, f.columns()...)...)
			}})
		}
	}
	return cases
}
