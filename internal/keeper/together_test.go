// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// ofTwo is a job of two GPUs, with a neighbour on each: groups 0 and 2 are its own. That both GPUs are played by one is no matter for who is off when.
func ofTwo(t *testing.T, percent int, elastic bool) *machine {
	t.Helper()
	m := played(t, []int{percent, 50, 50}, always(2*ms), always(2*ms), always(2*ms), always(2*ms))
	m.jobs = []uint32{1, 2, 1, 3}
	all := m.node.GPUs[0].Slices
	all[0].Elastic = elastic
	second := all[0]
	second.Place = 1
	m.node.GPUs[0].Slices = []Slice{all[0], all[1]}
	if err := ledger.CreateTime(m.run.Time(1), 1, 2); err != nil {
		t.Fatal(err)
	}
	m.node.GPUs = append(m.node.GPUs, NodeGPU{GPU: GPU{UUID: "GPU-b", Address: "0000:02:00.0"}, Slices: []Slice{second, all[2]}})
	return m
}

func (m *machine) onTwo(groups ...int) {
	m.node.Processes = nil
	for _, i := range groups {
		m.node.Processes = append(m.node.Processes, Process{Process: audit.Process{PID: 100 + i, StartTicks: m.start(100 + i)}, Job: m.jobs[i],
			Groups: []ledger.Group{{Client: uint32(1000 + i), Device: 1, Group: 1, Engine: 1, FD: 9, Subdevice: 2, DeviceInstance: uint32(i / 2), ChannelCount: 2, Channels: []uint32{3, 4}}}})
	}
	m.take()
}

// together is for which part of a time both of a job's processes are on, and one of them alone.
func (m *machine) together(d time.Duration) (both, one float64) {
	for until := m.gpu.Now + d; m.gpu.Now < until; {
		m.play(ms)
		switch a, b := m.gpu.Groups[0].Off, m.gpu.Groups[2].Off; {
		case !a && !b:
			both += float64(ms) / float64(d)
		case a != b:
			one += float64(ms) / float64(d)
		}
	}
	return both, one
}

// A job whose kernels wait for each other on two GPUs has its turns there at the same time.
func TestAJobOfTwoGPUsIsOnTogether(t *testing.T) {
	for _, elastic := range []bool{true, false} { // a cap takes no turns away here
		isOnTogether(t, ofTwo(t, 50, elastic))
	}
}

func isOnTogether(t *testing.T, m *machine) {
	t.Helper()
	m.onTwo(0, 1, 2, 3)
	m.play(2 * time.Second)
	both, one := m.together(5 * time.Second)
	near(t, "on together, percent", 100*both, 50, 3)
	near(t, "on one alone, percent", 100*one, 0, 2)
	m.onTwo(0, 1, 2) // it has one of them for itself
	m.play(time.Second)
	if m.play(2 * time.Second); m.gpu.Groups[2].Off || len(m.k.gpus["GPU-b"].turns.sets) > 0 {
		t.Error("it is put off where nobody else is")
	}
	if m.k.gpus[uuid].plan.Together {
		t.Error("it takes turns by the clock though it is on all the time elsewhere")
	}
}

// A cap holds in turns by the clock as well. One played GPU is both, so that the work on the second one is small.
func TestACappedJobOfTwoGPUsTakesTurnsWithinItsCap(t *testing.T) {
	for _, limit := range []int{30, 50} {
		m := ofTwo(t, limit, false)
		little := timeslices.Load{Work: 100 * us, Host: 20 * ms}
		m.gpu.Groups[2].Load, m.gpu.Groups[3].Load = little, little
		m.onTwo(0, 1, 2, 3)
		turns := 0
		shared := func(d time.Duration) {
			for until := m.gpu.Now + d; m.gpu.Now < until; m.play(ms) {
				for _, other := range m.k.gpus["GPU-b"].tenants {
					other.passed = 0 // it needs its turns there
				}
				if m.k.gpus[uuid].plan.Together {
					turns++
				}
			}
		}
		shared(5 * time.Second)
		busy, at := m.gpu.Groups[0].Busy, m.gpu.Now
		shared(20 * time.Second)
		had := percent(m.gpu.Groups[0].Busy-busy, m.gpu.Now-at)
		if had > float64(limit)+1 || had < float64(limit)-4 || turns < 20*1000 {
			t.Errorf("a cap of %d: %.1f, with turns for %d ms", limit, had, turns)
		}
	}
}

// One that lets its turns pass keeps nobody from the GPU for longer than it takes to see that: others have what it leaves.
func TestAJobOfTwoGPUsThatIsIdleHasNoTurns(t *testing.T) {
	m := ofTwo(t, 60, true)
	for _, i := range []int{0, 2} {
		m.gpu.Groups[i].Load = timeslices.Load{Work: ms, Host: 200 * ms}
	}
	m.onTwo(0, 1, 2, 3)
	m.play(5 * time.Second)
	off := time.Duration(0)
	for until := m.gpu.Now + 15*time.Second; m.gpu.Now < until; m.play(ms) {
		if m.gpu.Groups[1].Off {
			off += ms
		}
	}
	near(t, "a neighbour is off, percent", 100*off.Seconds()/15, 0, 3)
}

// A cap is held in periods that begin at the same time on all GPUs.
func TestACapOfTwoGPUsIsOnTogether(t *testing.T) {
	m := ofTwo(t, 30, false)
	m.onTwo(0)
	m.play(1234 * ms)
	m.onTwo(0, 2)
	m.play(time.Second)
	var letOn [2][]time.Duration // when each was let on
	was := [2]bool{}
	for until := m.gpu.Now + 5*time.Second; m.gpu.Now < until; m.play(ms) {
		for i, g := range []int{0, 2} {
			if off := m.gpu.Groups[g].Off; off != was[i] {
				if was[i] = off; !off {
					letOn[i] = append(letOn[i], m.gpu.Now)
				}
			}
		}
	}
	if len(letOn[0]) < 20 || len(letOn[0]) != len(letOn[1]) {
		t.Fatalf("one was let on %d times, and the other %d times", len(letOn[0]), len(letOn[1]))
	}
	for i, at := range letOn[0] {
		if apart := letOn[1][i] - at; max(apart, -apart) > 3*ms {
			t.Errorf("one was let on at %s, the other %s later", at, apart)
		}
	}
}
