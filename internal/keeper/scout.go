// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"slices"
	"time"
)

// scout looks at the node beside the loop, as a user can make a look take a second.
type scout struct {
	found chan Node
	stop  chan struct{}
	ended chan struct{}
}

func beginScout(look func() (Node, error), changed <-chan struct{}) *scout {
	s := &scout{found: make(chan Node), stop: make(chan struct{}), ended: make(chan struct{})}
	go s.run(look, changed)
	return s
}

func (s *scout) run(look func() (Node, error), changed <-chan struct{}) {
	defer close(s.ended)
	tried := 0
	var spent looked
	for {
		began := time.Now()
		node, err := look()
		rested := time.After(spent.rest(began, time.Since(began)))
		if (err == nil || len(node.GPUs) > 0) && !s.tell(node) { // where the node cannot be read, the last look stays
			return
		}
		var retry <-chan time.Time
		if err == nil {
			tried = 0
		} else if tried++; tried <= mostTried {
			retry = time.After(min(mostAgain, again<<min(tried-1, 10)))
		}
		select {
		case <-changed:
			tried = 0
		case <-retry:
		case <-s.stop:
			return
		}
		select {
		case <-rested:
		case <-s.stop:
			return
		}
	}
}

// looked is the time that looks have taken of late.
type looked struct {
	took time.Duration
	at   time.Time
}

// rest is the time without a look after a look that took so long.
func (l *looked) rest(began time.Time, took time.Duration) time.Duration {
	l.took = max(0, l.took-time.Duration(ofScout*float64(began.Sub(l.at)))) + took
	l.at = began
	if over := l.took - scoutSaved; over > 0 {
		l.took = scoutSaved + min(over, time.Duration(ofScout*float64(longestRest)))
		return max(scoutEach, min(longestRest, time.Duration(float64(over)/ofScout)))
	}
	return scoutEach
}

// tell is false at the end.
func (s *scout) tell(node Node) bool {
	select {
	case s.found <- node:
		return true
	case <-s.stop:
		return false
	}
}

func (s *scout) end() {
	close(s.stop)
	select {
	case <-s.ended:
	case <-time.After(endWait):
	}
}

// jobs are those with slices on GPUs that are kept.
func (n Node) jobs() (jobs []uint32) {
	for _, g := range n.GPUs {
		for _, s := range g.Slices {
			jobs = append(jobs, s.Job)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}
