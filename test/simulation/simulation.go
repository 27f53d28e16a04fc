// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"container/heap"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
)

const (
	soon        = 5           // seconds until a job that a node put back may start again
	prologTakes = 2           // seconds that a node's counts are taken by a job that it puts back
	sameSecond  = 2           // seconds until a job starts that was told of room right after its refusal
	lately      = 10          //
	credExpire  = 120         // Slurm's own delay of a job that was put back
	maxRequeues = 5           //
	planEvery   = 60          // bf_interval, doubled
	planned     = 50          // for how many waiting jobs the plan keeps a node
	looked      = 100         // how many waiting jobs of a kind are looked at when a node has changed
	shortest    = 60          // for which a start is put off where no other node is left
	longestWait = 4 * 60 * 60 //
)

type eventKind int

const (
	submitted eventKind = iota
	ended
	back  // a job may start again
	again // a node's counts are free again
	plan
)

type event struct {
	at   int64
	what eventKind
	job  *job
	node *node
	seq  int
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(a, b int) bool {
	return e[a].at < e[b].at || e[a].at == e[b].at && e[a].seq < e[b].seq
}
func (e events) Swap(a, b int) { e[a], e[b] = e[b], e[a] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// simulation is one policy with one trace.
type simulation struct {
	policy policy
	nodes  []*node
	index  tree
	queues []queue // of each kind
	events events
	seq    int
	now    int64
	after  func() // each event; for tests
	measured
}

func newSimulation(p policy, nodes, gpus int, jobs []*job, from, until int64) *simulation {
	s := &simulation{policy: p, queues: make([]queue, len(mix)), measured: measured{from: from, until: until, gpus: nodes * gpus}}
	if p.pool {
		nodes, gpus = 1, nodes*gpus
	}
	s.policy.inv = inventory(gpus)
	for i := range nodes {
		s.nodes = append(s.nodes, newNode(i, gpus, &s.policy))
	}
	s.index = newTree(s.nodes)
	for _, j := range jobs {
		copied := *j
		s.all = append(s.all, &copied)
		s.push(event{at: j.at, what: submitted, job: &copied})
	}
	s.push(event{at: planEvery, what: plan})
	return s
}

func (s *simulation) push(e event) {
	s.seq++
	e.seq = s.seq
	heap.Push(&s.events, e)
}

func (s *simulation) run() {
	for s.events.Len() > 0 {
		e := heap.Pop(&s.events).(event)
		s.elapse(min(e.at, s.until))
		if s.now = e.at; s.now >= s.until {
			return
		}
		switch e.what {
		case submitted:
			e.job.stands = queued
			s.queues[e.job.kind].add(e.job)
			s.waiting++
			s.anywhere(e.job)
		case back:
			if e.job.stands == away && e.job.backAt == e.at {
				e.job.stands = queued
				s.anywhere(e.job)
			}
		case ended:
			s.end(e.job)
		case again:
			s.here(e.node)
		case plan:
			s.plan()
			s.push(event{at: s.now + planEvery, what: plan})
		}
		if s.after != nil {
			s.after()
		}
	}
}

// anywhere tries the first node by number on which slurmctld sees room. The node's prolog may know better.
func (s *simulation) anywhere(j *job) {
	if j.not.size == 0 && s.queues[j.kind].olderWaits(j) {
		return
	}
	need := s.policy.need(mix[j.kind])
	may := func(n *node) bool { return !j.not.has(n.number) && n.mayBegin(j, s.now) }
	if !s.policy.emptiest {
		s.index.first(j.next, need, func(n *node) bool { return may(n) && s.try(n, j) })
	} else if n := s.index.emptiest(need, may); n != nil {
		s.try(n, j)
	}
}

// try says whether the job is on its way: it began, or was put back.
func (s *simulation) try(n *node, j *job) bool {
	switch {
	case s.policy.pool:
	case s.policy.byGPU:
		if j.placed = n.pick(j, s.now); j.placed == nil {
			return false
		}
	default:
		if j.placed = n.fit(j, s.now); j.placed == nil {
			s.refuse(n, j)
			return true
		}
	}
	s.begin(n, j)
	return true
}

// refuse is the prolog that finds no room.
func (s *simulation) refuse(n *node, j *job) {
	s.refused(j)
	j.stands, j.last, j.backAt = away, s.now, s.now+soon
	if n.kept.job == j {
		n.kept = kept{}
	}
	switch {
	case !s.policy.waits && j.came > maxRequeues:
		j.stands, j.failed = gone, true
		s.waiting--
		s.queues[j.kind].drop()
		return
	case !s.policy.waits:
		j.backAt = s.now + credExpire
	case j.not.size+1 < len(s.nodes):
		n.list(j, s.now)
		j.not.add(n.number)
		j.next = n.number + 1
	default:
		at := n.list(j, s.now)
		j.backAt = s.now + longestWait
		if at != 0 {
			j.backAt = min(max(at, s.now+shortest), j.backAt)
		}
	}
	s.push(event{at: j.backAt, what: back, job: j})
	s.push(event{at: s.now + prologTakes, what: again, node: n})
}

func (s *simulation) begin(n *node, j *job) {
	j.stands, j.began, j.node = running, s.now, n
	s.queues[j.kind].drop()
	n.take(j, s.now)
	s.index.update(n)
	for _, other := range j.listed {
		other.unlist(j)
	}
	if n.claims != nil { // what those that wait can have is not touched by it
		k := mix[j.kind]
		for _, gpu := range j.placed {
			n.claims.grant(place.Held{Slice: s.policy.slice(gpu, k), Job: j.id, Ends: s.now + j.limit}, k)
		}
	}
	s.started(j)
	s.push(event{at: s.now + j.runs, what: ended, job: j})
}

// end frees a job's slices. Those that wait for this node are told, and slurmctld looks who may come.
func (s *simulation) end(j *job) {
	n := j.node
	n.release(j)
	j.stands = gone
	s.index.update(n)
	s.finished(j)
	for _, told := range n.tell(s.now) {
		told.not.remove(n.number)
		told.next = n.number
		at := s.now + 1
		if s.now-told.last < lately {
			at = s.now + sameSecond
		}
		if told.stands == away && told.backAt > at || told.stands == queued {
			told.stands, told.backAt = away, at
			s.push(event{at: at, what: back, job: told})
		}
	}
	s.here(n)
}

// here gives a node that has changed to those in the queue, the oldest first.
func (s *simulation) here(n *node) {
	var heads [16]*job
	for k := range s.queues {
		heads[k] = s.head(n, k)
	}
	for {
		var first *job
		for _, j := range heads[:len(s.queues)] {
			if j != nil && (first == nil || j.id < first.id) {
				first = j
			}
		}
		if first == nil || s.try(n, first) && first.stands == away { // its counts are taken for a moment
			return
		}
		heads[first.kind] = nil
		if first.stands == running {
			for k := range s.queues {
				if heads[k] != nil || k == first.kind {
					heads[k] = s.head(n, k)
				}
			}
		}
	}
}

// head is the oldest job of a kind that slurmctld may send to a node.
func (s *simulation) head(n *node, k int) *job {
	if !n.room().has(s.policy.need(mix[k])) {
		return nil
	}
	return s.queues[k].first(looked, func(j *job) bool { return !j.not.has(n.number) && n.mayBegin(j, s.now) })
}

// plan keeps nodes for those that have waited longest, as backfill does: each the one that has room soonest, by time limits.
func (s *simulation) plan() {
	for _, n := range s.nodes {
		n.kept = kept{}
	}
	var oldest []*job
	for k := range s.queues {
		s.queues[k].first(planned, func(j *job) bool { oldest = append(oldest, j); return false })
	}
	slices.SortFunc(oldest, func(a, b *job) int { return int(a.id) - int(b.id) })
	soonest := make([][]*node, len(mix))
	for _, j := range oldest[:min(len(oldest), planned)] {
		if j.stands != queued {
			continue
		}
		k := j.kind
		if soonest[k] == nil {
			soonest[k] = slices.Clone(s.nodes)
			slices.SortStableFunc(soonest[k], func(a, b *node) int {
				x, y := a.soonest(k), b.soonest(k)
				if x < y {
					return -1
				} else if x > y {
					return 1
				}
				return 0
			})
		}
		for _, n := range soonest[k] {
			if n.kept.job != nil || j.not.has(n.number) {
				continue
			}
			if at := n.soonest(k); at > s.now || !s.try(n, j) {
				n.keep(j, at)
			}
			break
		}
	}
}
