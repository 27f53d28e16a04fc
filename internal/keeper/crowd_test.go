// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// job is one of a played node, with a process for each load.
type job struct {
	percent         int
	loads           []timeslices.Load
	latency, capped bool
	contexts        bool // the loads are of contexts of one process
}

var fills = timeslices.Load{Work: 1000 * time.Hour}

func elastic(percent int, loads ...timeslices.Load) job { return job{percent: percent, loads: loads} }
func capped(percent int, loads ...timeslices.Load) job {
	return job{percent: percent, loads: loads, capped: true}
}
func urgent(percent int, load timeslices.Load) job {
	return job{percent: percent, loads: []timeslices.Load{load}, latency: true}
}

// crowd is a node on which all processes of these jobs are there. The site logs who cheats.
func crowd(t *testing.T, jobs ...job) *machine {
	t.Helper()
	var percents []int
	var loads []timeslices.Load
	for _, j := range jobs {
		percents, loads = append(percents, j.percent), append(loads, j.loads...)
	}
	m := played(t, percents, loads...)
	m.log, m.k.Log, m.cheaters, m.k.Cheaters = hclog.NewNullLogger(), hclog.NewNullLogger(), "log", "log"
	m.jobs = nil
	for i, j := range jobs {
		s := &m.node.GPUs[0].Slices[i]
		s.Elastic, s.Latency = !j.capped, j.latency
		for k := range j.loads {
			g := m.gpu.Groups[len(m.jobs)]
			if g.Slice = 2048 * us; j.contexts {
				g.PID -= uint32(k)
			}
			m.jobs = append(m.jobs, s.Job)
		}
	}
	var all []int
	for i := range m.jobs {
		all = append(all, i)
	}
	m.members(all...)
	return m
}

// dies has the loop die. Its supervisor lets on again who is off, after a while, and another one begins.
func (m *machine) dies(letOn, begins time.Duration) {
	m.t.Helper()
	for _, p := range m.k.pages {
		p.Close()
	}
	m.open, m.logs, m.lookedAt = 0, nil, -1 // NVML has to be begun anew
	m.runs(m.gpu.Now + letOn)
	if err := undo(m.run.VgpudOff(), boot, NewEnabler(func() (Driver, error) { return fakeDriver{m}, nil }), m.gpu.Now); err != nil {
		m.t.Fatal(err)
	}
	m.runs(m.gpu.Now + begins)
	m.open = 0
	m.begin()
	m.take()
}

// ran is what each job had.
func (m *machine) ran() []time.Duration {
	all := make([]time.Duration, len(m.node.GPUs[0].Slices))
	for i, g := range m.gpu.Groups {
		all[m.jobs[i]-1] += g.Busy
	}
	return all
}

// counted is what each job's page says that it had, and until when.
func (m *machine) counted() (busy, looked []time.Duration) {
	for i := range m.node.GPUs[0].Slices {
		page := m.time(uint32(i + 1))
		busy, looked = append(busy, time.Duration(page.BusyNs)), append(looked, time.Duration(page.LookedNs))
	}
	return busy, looked
}

// condemned are the jobs whose pages say that they cheat.
func (m *machine) condemned() (jobs []uint32) {
	for _, s := range m.node.GPUs[0].Slices {
		if p := m.k.pages[s.Job]; p != nil && p.devices[0].Verdict != 0 {
			jobs = append(jobs, s.Job)
		}
	}
	return jobs
}

// made are the calls that change something.
func (m *machine) made() int { return m.calls["slice"] + m.calls["disable"] }

func percent(busy, of time.Duration) float64 { return 100 * float64(busy) / float64(of) }

// seen is what each had in a while, in percent, and what was counted.
type seen struct {
	had, counted []float64
	callsASecond float64
}

func (m *machine) watch(d time.Duration) (found seen) {
	m.t.Helper()
	for _, g := range m.gpu.Groups {
		g.Waits = nil
	}
	from, calls, had := m.gpu.Now, m.made(), m.ran()
	busy, looked := m.counted()
	m.play(d)
	found.callsASecond = float64(m.made()-calls) / (m.gpu.Now - from).Seconds()
	busyNow, lookedNow := m.counted()
	for i, now := range m.ran() {
		found.had = append(found.had, percent(now-had[i], m.gpu.Now-from))
		found.counted = append(found.counted, percent(busyNow[i]-busy[i], lookedNow[i]-looked[i]))
	}
	return found
}

func watch(t *testing.T, after, d time.Duration, jobs ...job) seen {
	t.Helper()
	m := crowd(t, jobs...)
	m.play(after)
	return m.watch(d)
}

func quantile(waits []time.Duration, q float64) float64 {
	sorted := slices.Sorted(slices.Values(waits))
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]) / float64(ms)
}

// inProportion holds what these had to their shares of it.
func inProportion(t *testing.T, name string, had []float64, all []job, within float64) {
	t.Helper()
	shares := 0.0
	for _, j := range all {
		shares += float64(j.percent)
	}
	for i, j := range all {
		if got, want := 100*had[i]/sum(had), 100*float64(j.percent)/shares; math.Abs(got-want) > within {
			t.Errorf("%s: slice %d has %.1f of what all have, want %.1f", name, i, got, want)
		}
	}
}

// inMemory is a folder there, as /run is.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "vgpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
