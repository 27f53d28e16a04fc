// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"slices"
	"time"
)

// paces are a process's last turns and the pauses between them.
type paces struct {
	leftNS        int64
	steps, pauses [remembered]int64
	ended, began  int
}

func (p *paces) end(atNS, lengthNS int64) {
	p.leftNS = atNS
	p.steps[p.ended%remembered] = lengthNS
	p.ended++
}

func (p *paces) begin(atNS int64) {
	if p.leftNS != 0 {
		p.pauses[p.began%remembered] = max(0, atNS-p.leftNS)
		p.began++
	}
}

// pace takes step and pause from the process of a tenant that works most: its average step, and a pause that is shorter than three quarters of all.
func (u *Usage) pace(p *paces) {
	if p.ended < 4 || p.began < 4 {
		return
	}
	steps, pauses := p.steps[:min(p.ended, remembered)], slices.Sorted(slices.Values(p.pauses[:min(p.began, remembered)]))
	all := int64(0)
	for _, ns := range steps {
		all += ns
	}
	step, pause := time.Duration(all)/time.Duration(len(steps)), time.Duration(pauses[len(pauses)/4])
	if u.Pause == 0 || float64(step)*float64(u.Pause) > float64(u.Step)*float64(pause) {
		u.Step, u.Pause = step, pause
	}
}
