// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// Who has a context and no work costs next to nothing, and is counted from its first kernel on.
func TestIdleSlicesAreLookedAtSeldom(t *testing.T) {
	for _, latency := range []bool{false, true} {
		idleIsLookedAtSeldom(t, latency)
	}
}

func idleIsLookedAtSeldom(t *testing.T, latency bool) {
	t.Helper()
	m := played(t, []int{30, 70}, timeslices.Load{Work: ms, Host: 30 * time.Second}, timeslices.Load{Work: ms, Host: 30 * time.Second})
	m.node.GPUs[0].Slices[0].Latency = latency
	m.members(0, 1)
	m.play(5 * time.Second)
	before := m.asked
	m.play(20 * time.Second)
	if n := m.asked - before; n > 11 {
		t.Errorf("%d looks in 20 s in which nobody did anything", n)
	}
	for _, g := range m.gpu.Groups {
		g.Load = always(ms)
	}
	had := m.time(1).BusyNs
	busy := m.gpu.Groups[0].Busy
	m.play(20 * time.Second) // the host's 30 s end in it
	near(t, "counted, percent", 100*float64(m.time(1).BusyNs-had)/float64(m.gpu.Groups[0].Busy-busy), 100, 3)
	before = m.asked
	if m.play(2 * time.Second); m.asked-before < 9 {
		t.Errorf("%d looks in 2 s of work", m.asked-before)
	}
}

// A job of many groups, all of whose slices change, does not keep its neighbour's from being set.
func TestAJobOfManyComesLastWhereCallsAreShort(t *testing.T) {
	const many = 64
	loads := make([]timeslices.Load, many+1)
	for i := range loads {
		loads[i] = always(2 * ms)
	}
	m := played(t, []int{50, 50}, loads...)
	all := make([]int, many+1)
	for i := range all {
		all[i], m.jobs[i] = i, 1
	}
	m.jobs[many] = 2
	m.members(all...)
	m.play(10 * time.Second)
	was := m.gpu.Groups[many].Slice
	m.node.GPUs[0].Slices[1].SMPercent = 20
	m.take()
	if m.gpu.Groups[many].Slice == was {
		t.Errorf("its slice is still %s", was)
	}
}
