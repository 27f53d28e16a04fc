// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// Within two seconds of beginning to cheat.
func TestWhoCheatsIsFound(t *testing.T) {
	const from = 3 * time.Second
	for name, c := range map[string]struct {
		want   share.Verdict
		others []*Slice
		cheat  func(*Slice)
	}{
		"slice":                 {share.SetsItsSlice, []*Slice{job(9, 60, fills)}, func(s *Slice) { s.Groups[0].Cheat.Sets = time.Second }},
		"enables":               {share.RunsWhileOff, []*Slice{job(9, 30, Load{Work: ms, Host: ms}), job(10, 30, fills)}, func(s *Slice) { s.Groups[0].Cheat.Enables = true }},
		"waits":                 {share.WaitsForIdle, []*Slice{job(9, 60, fills)}, func(s *Slice) { s.Groups[0].Cheat.Piece = 40 * ms }},
		"waits beside requests": {share.WaitsForIdle, []*Slice{urgent(9, 40, Load{Work: ms, Host: 40 * ms, Varied: true})}, func(s *Slice) { s.Groups[0].Cheat.Piece = 200 * ms }},
		"groups":                {share.HasTooMany, []*Slice{job(9, 60, fills)}, func(s *Slice) { s.Extra.Unlisted = 1 }},
		"contexts":              {share.MakesWithoutEnd, []*Slice{job(9, 60, fills)}, func(s *Slice) { s.Extra.Made = 30 }},
		"hides":                 {share.HidesItsHandles, []*Slice{job(9, 60, fills)}, func(s *Slice) { s.Extra.MemoryBytes = 1 }},
	} {
		cheater := job(1, 40, fills)
		all := append([]*Slice{cheater}, c.others...)
		g := gpuOf(all...)
		v := NewVgpud(g, &share.Budget{}, all...)
		v.Run(from)
		if len(v.Condemned) > 0 {
			t.Errorf("%s: %v before anything was done", name, v.Condemned)
		}
		began := g.Now
		c.cheat(cheater)
		v.Run(from + 5*time.Second)
		if v.Condemned[1] != c.want || len(v.Condemned) != 1 || v.First-began > 2*time.Second+eachPlan+eachLook {
			t.Errorf("%s: %v after %v", name, v.Condemned, v.First-began)
		}
	}
}

var honest = []Load{
	fills, fills, fills,
	{Work: ms, Host: ms}, {Work: ms, Host: 100 * us}, {Work: ms, Host: 5 * ms}, {Work: ms, Host: 215 * us}, {Work: 100 * us, Host: 100 * us},
	{Work: 300 * us, Host: 3 * ms, Varied: true}, {Work: 50 * us, Host: ms}, {Work: 5203 * us, Host: 25 * ms, Varied: true}, {Work: 1010 * us, Host: 5 * ms, Varied: true},
	{Work: 5 * ms, Host: 40 * ms, Varied: true}, {Work: 19820 * us, Host: 40 * ms, Varied: true}, {Work: 40 * ms, Host: 500 * us},
	{Work: 10 * ms, Host: 100 * us}, {Work: 6 * ms, Host: 3 * ms, Varied: true}, {Work: 200 * ms, Host: 200 * ms, Varied: true}, {Work: time.Second, Host: time.Second},
}

// randomNode has jobs of all these loads, of processes and of contexts, one perhaps of the latency class.
func randomNode(dice *rand.Rand) (all []*Slice) {
	n := 1 + dice.IntN(5)
	for i := range n {
		var loads []Load
		for range []int{1, 1, 1, 2, 4, 12}[dice.IntN(6)] {
			loads = append(loads, honest[dice.IntN(len(honest))])
		}
		s := job(uint32(100*(i+1)), float64(1+dice.IntN(99))/float64(n), loads...)
		if dice.IntN(4) == 0 {
			for _, x := range s.Groups {
				x.PID = s.Groups[0].PID // contexts of one process
			}
		}
		if i == 0 && dice.IntN(3) == 0 {
			b := share.NewBucket(s.Share/100, 250*ms)
			s.Bucket = &b
		}
		all = append(all, s)
	}
	return all
}

// Looks that come late, records that are lost, and a vgpud that dies condemn nobody, and let nobody have more GPU time than there was.
func TestWhoIsHonestIsNotJudged(t *testing.T) {
	for seed := range uint64(500) {
		dice := rand.New(rand.NewPCG(seed, 33))
		all := randomNode(dice)
		g := gpuOf(all...)
		v := NewVgpud(g, &share.Budget{}, all...)
		late, loses := dice.IntN(3) == 0, dice.IntN(3) == 0
		for g.Now < 12*time.Second {
			if late {
				v.Late = func() time.Duration { return time.Duration(dice.IntN(int(300 * ms))) }
			}
			if loses {
				v.Loses = func() bool { return dice.IntN(50) == 0 }
			}
			v.Run(g.Now + 4*time.Second)
			if len(v.Condemned) > 0 {
				t.Errorf("seed %d: %v", seed, v.Condemned)
			}
			v.Die(time.Duration(dice.IntN(int(50 * ms))))
			g.Run(g.Now + time.Duration(dice.IntN(int(time.Second))))
			v = NewVgpud(g, v.Budget, all...)
		}
		together := time.Duration(0)
		for i, s := range all {
			together += s.Account.Busy
			if s.Account.Busy+s.Account.Unknown > g.Now {
				t.Errorf("seed %d: slice %d had %v and unknown %v of %v", seed, i, s.Account.Busy, s.Account.Unknown, g.Now)
			}
		}
		if together > g.Now {
			t.Errorf("seed %d: all had %v of %v", seed, together, g.Now)
		}
	}
}
