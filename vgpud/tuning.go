// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// Each number of this program that was chosen, once; what vgpud does with time itself has its own in internal/keeper and internal/share. From: chosen, all of
// them. Wrong: what breaks.
const (
	// Between workers that die again and again, at first and at most. Wrong, small: they take a core; large: caps are held by nobody for it.
	firstPause   = 50 * time.Millisecond
	longestPause = 10 * time.Second
	// Of a worker that has not died early. Wrong, small: as above, both ways.
	shortestLife = 500 * time.Millisecond
	// Within which a worker ends, or is killed. Wrong, small: what it holds is let go of by another; large: vgpud ends late.
	endsWithin = 500 * time.Millisecond
	// How often the supervisor takes note that the worker still does the same. Wrong, small: each word wakes it; large: systemd takes it for one that hangs.
	sentEach = 250 * time.Millisecond
	// For a word that is there although the supervisor was late. Wrong, small: a worker on a busy node is replaced.
	lateWord = time.Millisecond
	// The priority that it runs with, the first there is (nice(1)). Wrong, large: a worker on a node whose jobs have all cores looks like one that hangs.
	firstPriority = -20
	// For who looks whether vgpud runs, and has its lock for that long. Wrong, small: vgpud does not start beside such a look.
	lockWait = time.Second
)
