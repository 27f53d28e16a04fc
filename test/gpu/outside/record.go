// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// mostLengths of one process are kept.
const mostLengths = 4000

// turns counts them for each process, and keeps their lengths.
type turns struct {
	*share.Turns
	count     map[uint32]int
	lengthsUS map[uint32][]int
	unlooked  int // records of another kind
}

func newTurns(beganNS int64) *turns {
	t := &turns{Turns: share.NewTurns(beganNS), count: map[uint32]int{}, lengthsUS: map[uint32][]int{}}
	t.Ended = func(on share.Switch, lengthNS int64) {
		if known := t.lengthsUS[on.PID]; len(known) < mostLengths {
			t.lengthsUS[on.PID] = append(known, int(lengthNS/1000))
		}
	}
	return t
}

func (t *turns) take(r channels.Record) {
	if !r.IsSwitch() {
		t.unlooked++
		return
	}
	if r.Starts() {
		t.count[r.PID]++
	}
	t.Take(share.Switch{AtNS: r.AtNS, PID: r.PID, Context: r.Channel, Serial: r.Serial, Start: r.Starts(), End: r.Ends()})
}
