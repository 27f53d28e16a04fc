// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"slices"
	"time"
)

// Verdict is what a process was seen to do that no program does by itself; empty: nothing. It reads behind "process 12 ".
type Verdict string

// What is judged.
const (
	SetsItsSlice    Verdict = "sets its own time slice"
	RunsWhileOff    Verdict = "runs while it is kept off"
	WaitsForIdle    Verdict = "makes each switch wait for its kernels"
	HasTooMany      Verdict = "has more channel groups than there is room for"
	MakesWithoutEnd Verdict = "makes contexts without end"
	HidesItsHandles Verdict = "uses the GPU without the library"
	TakesMore       Verdict = "has more than its part by channels that cannot be held"
)

// verdicts are what time pages name by a number, which stays the same in every release.
var verdicts = []Verdict{SetsItsSlice, RunsWhileOff, WaitsForIdle, HasTooMany, MakesWithoutEnd, HidesItsHandles, TakesMore}

// Number is a verdict's in time pages, from 1 on.
func (v Verdict) Number() uint32 { return uint32(slices.Index(verdicts, v) + 1) }

// VerdictOf is the verdict of a number; empty: there is none that this release knows.
func VerdictOf(number uint32) Verdict {
	if number == 0 || int64(number) > int64(len(verdicts)) {
		return ""
	}
	return verdicts[number-1]
}

// Seen is what was seen of a process since the last look at it. vgpud looks at everybody twice a second, and begins anew with a new Judge when it was away.
type Seen struct {
	Gone time.Duration

	Checked int // of its groups that were there at the last look as well and whose slice was set then: that it was read of
	Changed int // of these, those that had another slice

	Off    time.Duration // for how long all that it has was kept off, from the call's return until the call that ended it
	RanOff time.Duration // of that: in turns that began meanwhile (Meter.RanOff has both)

	Saves, SavesIdle uint64  // switches from it, and those of them that waited until it was idle
	Overran          bool    // most of its turns were longer than its slice (Meter.Overran)
	Used, Due        float64 // by its job, of 1: what it had, and its part of all shares at work
	OthersWait       bool    // the GPU is full, somebody else at work has less than his part, and nobody is kept off for another

	Crowded bool // as OthersWait, whoever is kept off
	Unheld  bool // it is at work, and has groups or channels that are not known

	Unlisted int // groups that found no room in its page
	Made     int // groups that it made

	MemoryBytes uint64 // on the GPU, as NVML shows it
	Handles     bool   // its page has a group of that GPU
}

// Judge is of one process.
type Judge struct {
	ran, waits, room, hides, takes int     // looks in a row
	slice                          float64 // looks, less what was pardoned
	made                           float64
	hidden                         time.Duration // since it was first seen to
}

// Look takes what was seen, and says what it comes to.
func (j *Judge) Look(s Seen) Verdict {
	switch {
	case s.Changed > 0:
		j.slice++
	case s.Checked > 0:
		j.slice = max(0, j.slice-pardon)
	}
	j.ran = again(j.ran, s.RanOff > ranOff && float64(s.RanOff) > ranOffPart*float64(s.Off), s.Off < ranOff)
	j.waits = again(j.waits, s.Overran && float64(s.SavesIdle) > waitedPart*float64(s.Saves) &&
		s.OthersWait && s.Used > s.Due+tooMuch, s.Saves == 0)
	j.takes = again(j.takes, s.Unheld && s.Crowded && s.Used > s.Due+tooMuch, false)
	j.room = again(j.room, s.Unlisted > 0, false)
	j.made = max(0, j.made-madeEachSecond*s.Gone.Seconds()) + float64(s.Made)
	if j.hides = again(j.hides, s.MemoryBytes > 0 && !s.Handles, false); j.hides > 1 {
		j.hidden += s.Gone
	} else {
		j.hidden = 0
	}
	switch {
	case j.slice >= strikesOfSlice:
		return SetsItsSlice
	case j.ran >= strikesRan:
		return RunsWhileOff
	case j.waits >= strikesWait:
		return WaitsForIdle
	case j.takes >= strikesWait:
		return TakesMore
	case j.room >= strikesRoom:
		return HasTooMany
	case j.made > mostMade:
		return MakesWithoutEnd
	case j.hidden >= hidden && j.hides >= strikesHidden:
		return HidesItsHandles
	}
	return ""
}

// Heir begins to look at a process whose job had another one that has ended: who cheats by many short ones is no better. What a program does by its number of
// contexts counts for each.
// Nobody is judged before something was seen of himself.
func (j Judge) Heir() Judge {
	return Judge{slice: min(j.slice, strikesOfSlice-1), ran: min(j.ran, strikesRan-1), waits: min(j.waits, strikesWait-1),
		takes: min(j.takes, strikesWait-1), hides: min(j.hides, strikesHidden-1), hidden: min(j.hidden, hidden/2)}
}

// Worse is the more suspicious of two, in each respect.
func (j Judge) Worse(k Judge) Judge {
	return Judge{ran: max(j.ran, k.ran), waits: max(j.waits, k.waits), room: max(j.room, k.room), hides: max(j.hides, k.hides),
		takes: max(j.takes, k.takes), slice: max(j.slice, k.slice), made: max(j.made, k.made), hidden: max(j.hidden, k.hidden)}
}

// again counts looks in a row; one that could not tell changes nothing.
func again(count int, seen, unsure bool) int {
	switch {
	case seen:
		return count + 1
	case unsure:
		return count
	}
	return 0
}

// Answer is what is done about a process that is judged.
type Answer int

// From the mildest on.
const (
	Log    Answer = iota
	Freeze        // its step, for FreezeFor
	Kill          // its step
)

// AfterKills is for how long a process of a job stands still at its beginning, of which so many steps were killed.
func AfterKills(killed int) time.Duration {
	if killed <= 0 {
		return 0
	}
	return min(longestDelay, firstDelay<<min(killed-1, 10))
}

// Answers is what the site answers with (cheaters), to a step that was frozen so often before. Nobody is killed for running while it is off: another
// user's process can have let it on, as the driver compares no owner there (docs/verified/time-from-outside.md).
func Answers(site Answer, verdict Verdict, frozen int) Answer {
	switch {
	case verdict == RunsWhileOff:
		return min(site, Freeze)
	case site == Freeze && frozen >= mostFrozen:
		return Kill
	}
	return site
}
