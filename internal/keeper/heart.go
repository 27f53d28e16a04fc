// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"io"
	"time"
)

// Doing is what a worker does, and how its supervisor knows that it goes on: each byte in their pipe is one.
type Doing byte

const (
	Idle    Doing = 'i' // no slice is at work: nothing is said until there is
	Working Doing = 'w'
	Holding Doing = 'h' // something is off, or frozen
)

const (
	// beatEach is how often a worker says that it goes on while it holds something.
	beatEach = 10 * time.Millisecond
	// workingEach is the same while it holds nothing.
	workingEach = time.Second
)

// Silence is for how long a worker may say nothing. 0: for ever.
func (d Doing) Silence() time.Duration {
	switch d {
	case Holding:
		return 3 * beatEach
	case Working:
		return 10 * time.Second
	case Idle:
	}
	return 0
}

// heart tells the supervisor what its worker does.
type heart struct {
	pipe io.Writer // nil: nobody listens
	is   Doing
	last time.Time
}

// beat is called from wherever the loop gets on, and says so when it is time. A supervisor that is gone is noticed elsewhere.
func (h *heart) beat(now time.Time) {
	each := workingEach
	switch h.is {
	case Holding:
		each = beatEach / 2 // a tick that comes a little early counts too
	case Idle:
		return
	case Working:
	}
	if now.Sub(h.last) >= each {
		h.say(now)
	}
}

// becomes says at once that the worker does something else: before it holds anything, and after it holds nothing.
func (h *heart) becomes(doing Doing, now time.Time) {
	if h.is != doing {
		h.is = doing
		h.say(now)
	}
}

func (h *heart) say(now time.Time) {
	h.last = now
	if h.pipe != nil {
		_, _ = h.pipe.Write([]byte{byte(h.is)}) // see above
	}
}
