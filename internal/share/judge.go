// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"slices"
	"time"
)

// Verdict is an act of a process that no honest program does; empty: none was seen. It reads behind "process 12 ".
type Verdict string

// The verdicts.
const (
	SetsItsSlice    Verdict = "sets its own time slice"
	RunsWhileOff    Verdict = "runs while it is kept off"
	WaitsForIdle    Verdict = "makes each switch wait for its kernels"
	HasTooMany      Verdict = "has more channel groups than there is room for"
	MakesWithoutEnd Verdict = "makes contexts without end"
	HidesItsHandles Verdict = "uses the GPU without the library"
	TakesMore       Verdict = "has more than its part by channels that cannot be held"
)

// verdicts have numbers in time pages, which stay the same in every release.
var verdicts = []Verdict{SetsItsSlice, RunsWhileOff, WaitsForIdle, HasTooMany, MakesWithoutEnd, HidesItsHandles, TakesMore}

// Number is a verdict's in time pages, from 1 on.
func (v Verdict) Number() uint32 { return uint32(slices.Index(verdicts, v) + 1) }

// VerdictOf is the verdict of a number; empty: this release has none.
func VerdictOf(number uint32) Verdict {
	if number == 0 || int64(number) > int64(len(verdicts)) {
		return ""
	}
	return verdicts[number-1]
}

// Seen are figures of a process since the last look at it. vgpud looks at every process twice a second. After an absence it begins with a new Judge.
type Seen struct {
	Gone time.Duration

	Checked int // of its groups, whose time slice was set at the last look or before: those that were read
	Changed int // of these, those that had another time slice

	Off    time.Duration // for how long all its channels were off, from the call's return until the call that ended it
	RanOff time.Duration // of that: in turns that began meanwhile (Meter.RanOff has both)

	Saves, SavesIdle uint64  // switches from it, and those of them that waited until it was idle
	Overran          bool    // most of its turns were longer than its time slice (Meter.Overran)
	Used, Due        float64 // of its job, of 1: its use, and its part of all shares at work
	OthersWait       bool    // the GPU is full, another tenant at work has less than its part, and no tenant is off for another

	Crowded bool // as OthersWait, also while tenants are off
	Unheld  bool // the process works, and has groups or channels that are not known

	Unlisted int // groups that found no room in its page
	Made     int // groups that it made

	MemoryBytes uint64 // on the GPU, as NVML shows it
	Handles     bool   // its page has a group of that GPU
}

// Judge is of one process.
type Judge struct {
	ran, waits, room, hides, takes int     // looks in a row
	slice                          float64 // looks, less pardons
	made                           float64
	hidden                         time.Duration // for how long
}

// Look takes the figures of a look, and returns a verdict.
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

// Heir is the judge of a new process in a job of which a suspected process has ended, as a job may cheat by many short processes. Counts of contexts begin
// anew with each process. No process is judged before a look at the process itself.
func (j Judge) Heir() Judge {
	return Judge{slice: min(j.slice, strikesOfSlice-1), ran: min(j.ran, strikesRan-1), waits: min(j.waits, strikesWait-1),
		takes: min(j.takes, strikesWait-1), hides: min(j.hides, strikesHidden-1), hidden: min(j.hidden, hidden/2)}
}

// Worse takes the higher of two judges' counts, each by itself.
func (j Judge) Worse(k Judge) Judge {
	return Judge{ran: max(j.ran, k.ran), waits: max(j.waits, k.waits), room: max(j.room, k.room), hides: max(j.hides, k.hides),
		takes: max(j.takes, k.takes), slice: max(j.slice, k.slice), made: max(j.made, k.made), hidden: max(j.hidden, k.hidden)}
}

// again counts looks in a row; a look that is unsure changes nothing.
func again(count int, seen, unsure bool) int {
	switch {
	case seen:
		return count + 1
	case unsure:
		return count
	}
	return 0
}

// Answer is the site's answer to a verdict.
type Answer int

// From the mildest on.
const (
	Log    Answer = iota
	Freeze        // its step, for FreezeFor
	Kill          // its step
)

// AfterKills is for how long a new process stands still in a job of which so many steps were killed.
func AfterKills(killed int) time.Duration {
	if killed <= 0 {
		return 0
	}
	return min(longestDelay, firstDelay<<min(killed-1, 10))
}

// Answers is the answer to a step that was frozen so often before; site is the value of cheaters in config.yaml. No step is killed for running while it is off:
// another user's process can have let it on, as the driver compares no owner there (docs/verified/time-from-outside.md).
func Answers(site Answer, verdict Verdict, frozen int) Answer {
	switch {
	case verdict == RunsWhileOff:
		return min(site, Freeze)
	case site == Freeze && frozen >= mostFrozen:
		return Kill
	}
	return site
}
