// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

import "time"

// Cap and Credit are how caps were held when that was measured on a machine; vgpud has one way for both (share.Hold). Cap holds one who has
// the GPU alone to a share: the part of each period for which it is on follows what a meter says that it used. One that sleeps between its
// steps is on for longer than its share.
type Cap struct {
	Share float64
	part  float64
}

// Next is the part from now on.
func (c *Cap) Next(used float64) float64 {
	const (
		follow = 0.8 // of what is missing
		least  = 0.01
	)
	if c.part == 0 {
		c.part = c.Share
		return c.part
	}
	if used > 0.001 {
		c.part *= 1 + follow*(c.Share-used)/max(used, c.Share/2)
	}
	c.part = min(1, max(least, c.part))
	return c.part
}

// Credit is the same of one who has neighbours: it holds it to a share: it is off while it has used more than that. What it did not use it keeps for a tenth
// of a second.
type Credit struct {
	Share float64
	left  time.Duration
}

// IsOff says so for what was used in the time that has gone by.
func (c *Credit) IsOff(used, gone time.Duration) bool {
	const kept = 100 * time.Millisecond
	c.left = min(kept, c.left+time.Duration(c.Share*float64(gone))-used)
	return c.left < 0
}
