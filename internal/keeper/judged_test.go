// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// Within two seconds of beginning to cheat, and a look and a plan, after NVML was asked for holders. Beside one of the latency class that asks for less than its
// share, who waits for idle is not found: nobody who always has work has less by it.
func TestWhoCheatsIsFound(t *testing.T) {
	first := func(m *machine) *timeslices.Group { return m.gpu.Groups[0] }
	another := uint32(secondGroup)
	names := func(m *machine, count int) { // so many groups more, instead of those before
		p := &m.node.Processes[0]
		for p.Groups = p.Groups[:1]; count > 0; count-- {
			another++
			p.Groups = append(p.Groups, p.Groups[0])
			p.Groups[len(p.Groups)-1].Group = another
		}
		m.take()
	}
	for name, c := range map[string]struct {
		want   share.Verdict
		others []job
		cheat  func(*machine) // once, or again and again
	}{
		"slice":    {share.SetsItsSlice, []job{elastic(60, fills)}, func(m *machine) { first(m).Cheat.Sets = time.Second }},
		"enables":  {share.RunsWhileOff, []job{elastic(30, timeslices.Load{Work: ms, Host: ms}), elastic(30, fills)}, func(m *machine) { first(m).Cheat.Enables = true }},
		"waits":    {share.WaitsForIdle, []job{elastic(60, fills)}, func(m *machine) { first(m).Cheat.Piece = 40 * ms }},
		"groups":   {share.HasTooMany, []job{elastic(60, fills)}, func(m *machine) { m.node.Processes[0].More = 1; names(m, ledger.MaxGroups-1) }},
		"contexts": {share.MakesWithoutEnd, []job{elastic(60, fills)}, func(m *machine) { names(m, 30) }},
		"hides":    {share.HidesItsHandles, []job{elastic(60, fills)}, func(m *machine) { m.strange[102] = 1 }},
	} {
		m := crowd(t, append([]job{elastic(40, fills)}, c.others...)...)
		m.play(3 * time.Second)
		if condemned := m.condemned(); len(condemned) > 0 {
			t.Errorf("%s: %v before anything was done", name, condemned)
		}
		began := m.gpu.Now
		for step := 0; len(m.condemned()) == 0 && m.gpu.Now < began+5*time.Second; step++ {
			if step%5 == 0 {
				c.cheat(m)
			}
			m.play(planEach / 5)
		}
		if found := m.gpu.Now - began; found > 2*time.Second+holdersEach+planEach+lookEach {
			t.Errorf("%s: not found after %v", name, found)
		}
		m.play(2 * time.Second)
		if verdict := share.VerdictOf(m.time(1).Verdict); verdict != c.want || len(m.condemned()) != 1 {
			t.Errorf("%s: %s, %v", name, verdict, m.condemned())
		}
	}
}

var honest = []timeslices.Load{
	fills, fills, fills,
	{Work: ms, Host: ms}, {Work: ms, Host: 100 * us}, {Work: ms, Host: 5 * ms}, {Work: ms, Host: 215 * us}, {Work: 100 * us, Host: 100 * us},
	{Work: 300 * us, Host: 3 * ms, Varied: true}, {Work: 50 * us, Host: ms}, {Work: 5203 * us, Host: 25 * ms, Varied: true}, {Work: 1010 * us, Host: 5 * ms, Varied: true},
	{Work: 5 * ms, Host: 40 * ms, Varied: true}, {Work: 19820 * us, Host: 40 * ms, Varied: true}, {Work: 40 * ms, Host: 500 * us},
	{Work: 10 * ms, Host: 100 * us}, {Work: 6 * ms, Host: 3 * ms, Varied: true}, {Work: 200 * ms, Host: 200 * ms, Varied: true}, {Work: time.Second, Host: time.Second},
}

// randomNode has jobs of all these loads, of processes and of contexts, one perhaps of the latency class.
func randomNode(dice *rand.Rand) (all []job) {
	n := 1 + dice.IntN(5)
	for i := range n {
		var loads []timeslices.Load
		for range []int{1, 1, 1, 2, 4, 12}[dice.IntN(6)] {
			loads = append(loads, honest[dice.IntN(len(honest))])
		}
		s := elastic(max(1, (1+dice.IntN(99))/n), loads...)
		s.contexts = dice.IntN(4) == 0
		s.latency = i == 0 && dice.IntN(3) == 0
		all = append(all, s)
	}
	return all
}

// Looks that come late, records that are lost, and a vgpud that dies condemn nobody, and let nobody have more GPU time than there was.
func TestWhoIsHonestIsNotJudged(t *testing.T) {
	for seed := range uint64(500) {
		dice := rand.New(rand.NewPCG(seed, 33))
		m := crowd(t, randomNode(dice)...)
		from := m.gpu.Now
		late, loses := dice.IntN(3) == 0, dice.IntN(3) == 0
		if late {
			m.late = func() time.Duration { return time.Duration(dice.IntN(int(300 * ms))) }
		}
		if loses {
			m.loses = func() bool { return dice.IntN(50) == 0 }
		}
		for m.gpu.Now < from+12*time.Second {
			m.play(4 * time.Second)
			if condemned := m.condemned(); len(condemned) > 0 {
				t.Errorf("seed %d: %v", seed, condemned)
			}
			m.dies(time.Duration(dice.IntN(int(50*ms))), time.Duration(dice.IntN(int(time.Second))))
		}
		together := time.Duration(0)
		for i := range m.node.GPUs[0].Slices {
			page := m.time(uint32(i + 1))
			had, unknown := time.Duration(page.BusyNs), time.Duration(page.UnknownNs)
			if together += had; had+unknown > m.gpu.Now-from {
				t.Errorf("seed %d: slice %d had %v and unknown %v of %v", seed, i, had, unknown, m.gpu.Now-from)
			}
		}
		if together > m.gpu.Now-from {
			t.Errorf("seed %d: all had %v of %v", seed, together, m.gpu.Now-from)
		}
	}
}
