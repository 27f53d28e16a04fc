// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"bytes"
	"testing"
	"time"
)

// A loop that waits in the driver for another's lock is there all the same, for a while.
func TestAWordIsSaidForALoopThatWaitsForTheDriver(t *testing.T) {
	var said bytes.Buffer
	now := time.Unix(1, 0)
	h := heart{pipe: &said, wake: make(chan struct{}, 1)}
	h.becomes(Working, now)
	if h.tick(now) {
		t.Error("it ticks while nothing is held")
	}
	h.becomes(Holding, now)
	if len(h.wake) != 1 {
		t.Error("nobody ticks while something is held")
	}
	said.Reset()
	for range 3 * int(mostStall/beatEach) { // the loop says nothing
		now = now.Add(beatEach)
		if !h.tick(now) {
			t.Fatal("it ticks no more while something is held")
		}
	}
	if got, most := said.Len(), int(mostStall/beatEach); got < most-1 || got > most {
		t.Errorf("%d words for a loop that hangs, want %d", got, most)
	}
	said.Reset()
	h.beat(now)
	if h.tick(now.Add(beatEach)); said.String() != "h" {
		t.Errorf("%q of a loop that gets on", said.String())
	}
	h.becomes(Idle, now)
	if h.tick(now) {
		t.Error("it ticks while nothing is held any more")
	}
}

func TestWordsEndWithTheLoop(t *testing.T) {
	stop, ended := make(chan struct{}), make(chan struct{})
	var said bytes.Buffer
	h := heart{pipe: &said, wake: make(chan struct{}, 1)}
	go func() { h.run(stop); close(ended) }()
	h.becomes(Holding, time.Now())
	close(stop)
	<-ended
}
