// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
)

// measured is what is written down between two times.
type measured struct {
	from, until int64
	gpus        int
	all         []*job

	waiting     int   // jobs, now
	mib         int64 // granted now
	percent     int64 // …
	memSeconds  float64
	timeSeconds float64
	busySeconds float64 // while somebody waits
	busyTime    float64 // … GPU-seconds granted then
	noUse       float64 // of all memory, what no waiting job could use, summed over samples
	samples     int
	refusals    int
	byHour      []hour // of the whole trace
}

// hour is what the picture shows.
type hour struct {
	Granted float64 `json:"granted"` // GPU-seconds of time, later a share of all
	Waiting float64 `json:"waiting"` // jobs, on average
}

// elapse counts what was until then.
func (s *simulation) elapse(to int64) {
	for at := s.now; at < to; {
		h := int(at / 3600)
		next := min(to, int64(h+1)*3600)
		for len(s.byHour) <= h {
			s.byHour = append(s.byHour, hour{})
		}
		s.byHour[h].Granted += float64(s.percent) / 100 * float64(next-at) / 3600 / float64(s.gpus)
		s.byHour[h].Waiting += float64(s.waiting) * float64(next-at) / 3600
		at = next
	}
	for at := (s.now/sampleEvery + 1) * sampleEvery; at <= to; at += sampleEvery {
		if at > s.from {
			s.samples++
			s.noUse += float64(s.ofNoUse()) / (gpuMiB * float64(s.gpus))
		}
	}
	seconds := float64(to - max(s.now, s.from))
	if seconds <= 0 {
		return
	}
	s.memSeconds += float64(s.mib) / gpuMiB * seconds
	s.timeSeconds += float64(s.percent) / 100 * seconds
	if s.waiting > 0 {
		s.busySeconds += seconds
		s.busyTime += float64(s.percent) / 100 * seconds
	}
}

const sampleEvery = 600

// ofNoUse is the free memory on GPUs where none of the jobs that wait now would fit: the fragments.
func (s *simulation) ofNoUse() (mib int64) {
	var kinds []kind
	for k := range s.queues {
		if slices.ContainsFunc(s.queues[k].jobs, func(j *job) bool { return j.stands == queued || j.stands == away }) {
			kinds = append(kinds, mix[k])
		}
	}
	if len(kinds) == 0 {
		return 0
	}
	for _, n := range s.nodes {
		for i, g := range n.gpus {
			if !slices.ContainsFunc(kinds, func(k kind) bool { return n.policy.useful(n.gpus, i, k) }) {
				mib += gpuMiB - g.mib
			}
		}
	}
	return mib
}

// useful says that a job of the kind could have that GPU of the node.
func (p *policy) useful(gpus []use, gpu int, k kind) bool {
	if !p.fits(gpus[gpu], k) {
		return false
	}
	fit := 0
	for _, g := range gpus {
		if p.fits(g, k) {
			fit++
		}
	}
	return fit >= k.slices
}

func (p *policy) fits(g use, k kind) bool {
	if k.whole() {
		return g.slices == 0
	}
	if p.byGPU {
		return gpuMiB-g.shards >= k.shards()
	}
	return gpuMiB-g.mib >= k.mib && 100-g.percent >= k.percent
}

func (s *simulation) started(j *job) {
	s.mib, s.percent = s.mib+j.mem(), s.percent+j.percent()
	s.waiting--
}

func (s *simulation) finished(j *job) {
	s.mib, s.percent = s.mib-j.mem(), s.percent-j.percent()
}

func (s *simulation) refused(j *job) {
	j.came++
	if s.now >= s.from {
		s.refusals++
	}
}

// waits are in minutes. Of those who wait still it is how long they have.
type waits struct {
	Mean    float64 `json:"mean_minutes"`
	Median  float64 `json:"median_minutes"`
	Ninety  float64 `json:"p90_minutes"`
	Longest float64 `json:"longest_minutes"`
}

func waitsOf(seconds []int64) (w waits) {
	if len(seconds) == 0 {
		return w
	}
	slices.Sort(seconds)
	sum := int64(0)
	for _, s := range seconds {
		sum += s
	}
	at := func(part float64) float64 { return float64(seconds[int(part*float64(len(seconds)-1))]) / 60 }
	return waits{float64(sum) / 60 / float64(len(seconds)), at(.5), at(.9), at(1)}
}

// result is what the table has of a policy.
type result struct {
	Policy    string  `json:"policy"`
	Jobs      int     `json:"jobs"`            // submitted in the time that is looked at
	Memory    float64 `json:"memory_granted"`  // share of all, on average
	Time      float64 `json:"time_granted"`    // …
	Busy      float64 `json:"time_while_busy"` // … while jobs wait
	NoUse     float64 `json:"memory_of_no_use"`
	Waits     waits   `json:"waits"`
	Large     waits   `json:"waits_of_large"`   // jobs of more than half a GPU
	Refusals  int     `json:"came_in_vain"`     // nodes without room that jobs were sent to
	Once      float64 `json:"jobs_in_vain"`     // share of jobs that this happened to
	Most      int     `json:"in_vain_at_most"`  // of one job
	Failed    int     `json:"failed"`           //
	Unstarted int     `json:"not_begun"`        // at the end
	Hours     []hour  `json:"hours,omitempty"`  // of the whole trace
	Seconds   float64 `json:"computed_seconds"` // that this took
}

func (s *simulation) result() result {
	span := float64(s.until-s.from) * float64(s.gpus)
	r := result{Policy: s.policy.name, Memory: s.memSeconds / span, Time: s.timeSeconds / span, NoUse: s.noUse / float64(max(1, s.samples)),
		Busy: s.busyTime / max(1, s.busySeconds*float64(s.gpus)), Refusals: s.refusals, Hours: s.byHour}
	var all, large []int64
	vain := 0
	for _, j := range s.all {
		if j.at < s.from || j.at >= s.until {
			continue
		}
		r.Jobs++
		r.Most = max(r.Most, j.came)
		if j.came > 0 {
			vain++
		}
		wait := s.until - j.at
		switch {
		case j.failed:
			r.Failed++
			continue
		case j.began >= 0:
			wait = j.began - j.at
		default:
			r.Unstarted++
		}
		if all = append(all, wait); mix[j.kind].large() {
			large = append(large, wait)
		}
	}
	r.Once = float64(vain) / float64(max(1, r.Jobs))
	r.Waits, r.Large = waitsOf(all), waitsOf(large)
	return r
}
