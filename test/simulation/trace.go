// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"

	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// A GPU of the trace: an H200's memory.
const gpuMiB = 143771

// kind is what some of the jobs ask for, and how many of a hundred do.
type kind struct {
	name      string
	of100     int
	slices    int
	mib       int64
	percent   int64
	medianMin float64 // of how long they run
}

// mix is made up: most jobs are small, a tenth wants a GPU, some want several.
var mix = []kind{
	{"notebook", 20, 1, 8000, 10, 360},
	{"small", 20, 1, 16000, 25, 150},
	{"quarter", 14, 1, 36000, 25, 240},
	{"third", 12, 1, 48000, 40, 240},
	{"half", 13, 1, 70000, 50, 300},
	{"most", 8, 1, 100000, 60, 300},
	{"whole", 10, 1, gpuMiB, 100, 300},
	{"two", 2, 2, gpuMiB, 100, 420},
	{"four", 1, 4, gpuMiB, 100, 420},
}

// whole says that a job of the kind has GPUs to itself.
func (k kind) whole() bool { return k.percent == 100 }

// large says that a slice of the kind leaves no room for another like it.
func (k kind) large() bool { return k.percent > 50 || k.slices > 1 }

// shards are what a slice takes of a GPU where a shard stands for memory and time alike: the larger part (decision 044).
func (k kind) shards() int64 { return max(k.mib, k.percent*gpuMiB/100) }

type standing int

const (
	coming  standing = iota // not submitted yet
	queued                  // in Slurm's queue
	away                    // put back there by a node, and not to start for some seconds
	running                 //
	gone                    // has ended, or failed
)

// job is one of the trace, and what becomes of it.
type job struct {
	id     uint32
	kind   int
	at     int64 // when it is submitted, in seconds
	runs   int64 // seconds that it takes
	limit  int64 // seconds that it asks for
	want   place.Want
	stands standing
	began  int64 // -1: not yet
	failed bool
	node   *node
	placed []int   // GPUs of the node
	not    set     // nodes that it excludes
	next   int     // the node from which on it is tried
	listed []*node // nodes that it waits for
	came   int     // how often a node put it back
	last   int64   // … and when it did so last
	backAt int64   // when it may start again
}

func (j *job) mem() int64     { return int64(j.want.Slices) * mix[j.kind].mib }
func (j *job) percent() int64 { return int64(j.want.Slices) * mix[j.kind].percent }

// wantAt is what the job wants of a node, if it comes there now.
func (j *job) wantAt(now int64) place.Want {
	want := j.want
	want.Ends = now + j.limit
	return want
}

const (
	sigma    = 1.0 // of the logarithm of how long jobs run
	longest  = 24 * 3600
	day      = 24 * 3600
	leastJob = 60
	swing    = 0.3 // how far the rate of submissions swings around its mean, over a day
)

// mean is how many GPU-seconds a job of the mix takes on average, of memory or of time, whichever is more.
func mean() float64 {
	var mem, time, all float64
	for _, k := range mix {
		seconds := k.medianMin * 60 * math.Exp(sigma*sigma/2)
		mem += float64(k.of100) * seconds * float64(k.slices) * float64(k.mib) / gpuMiB
		time += float64(k.of100) * seconds * float64(k.slices) * float64(k.percent) / 100
		all += float64(k.of100)
	}
	return max(mem, time) / all
}

// submissions are the jobs that are submitted in so many seconds, and ask for this much of all GPUs on average.
func submissions(random *rand.Rand, gpus int, load float64, seconds int64) []*job {
	perSecond := load * float64(gpus) / mean()
	var jobs []*job
	for at := 0.0; ; {
		// The rate swings over the day: thinning of the highest one.
		at += random.ExpFloat64() / (perSecond * (1 + swing))
		if at >= float64(seconds) {
			return jobs
		}
		now := perSecond * (1 - swing*math.Cos(2*math.Pi*at/day))
		if random.Float64()*perSecond*(1+swing) > now {
			continue
		}
		jobs = append(jobs, one(random, uint32(len(jobs)+1), int64(at)))
	}
}

func one(random *rand.Rand, id uint32, at int64) *job {
	k := 0
	for left := random.IntN(100); left >= mix[k].of100; k++ {
		left -= mix[k].of100
	}
	runs := int64(mix[k].medianMin * 60 * math.Exp(random.NormFloat64()*sigma))
	runs = min(max(runs, leastJob), longest)
	return &job{id: id, kind: k, at: at, runs: runs, limit: min(runs*int64(110+random.IntN(200))/100, 2*longest), began: -1,
		want: place.Want{Slices: mix[k].slices, Mem: request.Mem{MiB: mix[k].mib}, SMPercent: int(mix[k].percent)}}
}

// set is a set of nodes by number.
type set struct {
	words []uint64
	size  int
}

func (s *set) has(n int) bool { return n/64 < len(s.words) && s.words[n/64]>>(n%64)&1 == 1 }

func (s *set) add(n int) {
	for n/64 >= len(s.words) {
		s.words = append(s.words, 0)
	}
	if !s.has(n) {
		s.words[n/64] |= 1 << (n % 64)
		s.size++
	}
}

func (s *set) remove(n int) {
	if s.has(n) {
		s.words[n/64] &^= 1 << (n % 64)
		s.size--
	}
}
