// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"io"
	"sync"
	"time"
)

// Doing is the state of a worker. Each byte in the pipe to its supervisor is one, and shows that the worker runs.
type Doing byte

const (
	Empty   Doing = 'e' // no slice is on the node: no word until there is one
	Idle    Doing = 'i' // no slice is at work: the same
	Working Doing = 'w'
	Holding Doing = 'h' // something is off, or frozen
	// JobEnded comes before a state: the slices of a job have gone.
	JobEnded Doing = 'j'
)

// Silence is for how long a worker may say nothing. 0: for ever.
func (d Doing) Silence() time.Duration {
	switch d {
	case Holding:
		return holdingSilence
	case Working:
		return workingSilence
	case Empty, Idle, JobEnded:
	}
	return 0
}

// heart writes the worker's state to the supervisor. Beside the loop it writes words as long as the loop makes progress.
type heart struct {
	pipe io.Writer     // nil: no supervisor
	wake chan struct{} // something is held from now on

	mutex    sync.Mutex
	is       Doing
	last     time.Time // the last word
	progress time.Time // of the loop
}

// run is beside the loop, until stop is closed. While nothing is held it costs nothing.
func (h *heart) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-h.wake:
		}
		ticks := time.NewTicker(beatEach)
		for holds := true; holds; {
			select {
			case <-stop:
				holds = false
			case now := <-ticks.C:
				holds = h.tick(now)
			}
		}
		ticks.Stop()
	}
}

// tick is false where nothing is held any more.
func (h *heart) tick(now time.Time) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.is == Holding && now.Sub(h.progress) < mostStall {
		h.sayDue(now)
	}
	return h.is == Holding
}

// beat is called wherever the loop makes progress, and writes a word when it is time. While a program is held the ticks write: each word wakes the supervisor.
// A supervisor that is gone is noticed elsewhere.
func (h *heart) beat(now time.Time) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.progress = now; h.is != Holding {
		h.sayDue(now)
	}
}

func (h *heart) sayDue(now time.Time) {
	each := workingEach
	switch h.is {
	case Holding:
		each = beatEach / 2 // a tick that comes a little early counts too
	case Empty, Idle, JobEnded:
		return
	case Working:
	}
	if now.Sub(h.last) >= each {
		h.say(now)
	}
}

// becomes writes a new state at once: before the worker holds a program, and after it holds none.
func (h *heart) becomes(doing Doing, now time.Time) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.progress = now
	if h.is == doing {
		return
	}
	if h.is = doing; doing == Holding {
		select {
		case h.wake <- struct{}{}:
		default: // the state is there already, or the supervisor is gone
		}
	}
	h.say(now)
}

// jobEnded writes that a job's slices have gone.
func (h *heart) jobEnded(now time.Time) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.say(now, JobEnded)
}

func (h *heart) say(now time.Time, news ...Doing) {
	h.last = now
	if h.pipe != nil {
		word := make([]byte, 0, 2)
		for _, doing := range append(news, h.is) {
			word = append(word, byte(doing))
		}
		_, _ = h.pipe.Write(word) // see above
	}
}
