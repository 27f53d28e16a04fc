// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Each number of this package that was measured or chosen, once. From: where it was measured, or that it was chosen; Wrong: what breaks if it is. A
// comment stands for what follows it up to the next one. A time has its unit in its type; a part says what it is a part of. Measured was on an H200
// with driver 580 (docs/verified/time-from-outside.md), unless it says otherwise: of another GPU look first at that. internal/keeper has its own.

// Rounds of slices (rule.go).
const (
	// From: measured, a switch costs 0.24 ms, which is 3 % of the first; of the second, where somebody starts, who waits for a round again and again,
	// 11 %. Wrong, small: switches take the GPU's time; large: who waits for a round is late by it.
	roundOfEach  = 8 * time.Millisecond
	roundOfStart = 2 * time.Millisecond
	// Of all slices where everybody always has work, and what a job of many groups lengthens it to. From: chosen. Wrong: as above.
	leastRound = 20 * time.Millisecond
	mostRound  = 100 * time.Millisecond
	// Of each of many groups, as long as the round allows it. From: chosen, four switches. Wrong: as above.
	leastOfMany = time.Millisecond
	// Of who sleeps and has less than its share, all its groups together, which nobody cuts; and of the others meanwhile. From: chosen. Wrong: it has
	// less than its share, or the others stand still.
	longSlice = 100 * time.Millisecond
	shortest  = 100 * time.Microsecond
	// Of those who take turns, on average, and at least: each is two calls. From: chosen, by CostDisable. Wrong, small: the calls take a core; large: who
	// is off stands still for it.
	turn      = 100 * time.Millisecond
	leastTurn = 5 * time.Millisecond
	// Of its turns: one that always has work leaves no more by itself. From: chosen. Wrong: one that pauses is taken for one that does not.
	leftOften = 0.1
	// Of the GPU: nothing is changed for less. From: chosen, what the meter is good for. Wrong, small: calls for nothing; large: shares are off by it.
	slack = 0.005
	// From: measured, a request of 5 ms ends after 5.28 ms at p99 beside slices of 50 us, after 7.31 beside slices of 2 ms. Wrong, large: requests are late.
	besideLatency = 50 * time.Microsecond
	// Of a round, for each GPU that takes part in turns together. From: measured, two changes in it, of two calls of 0.7 ms, are 1.1 % of a core. Wrong,
	// small: the calls take a core; large: who is off stands still for it.
	togetherEach = 250 * time.Millisecond
)

// Slices of unlike steps (alike.go). From: chosen, by plays of test/timeslices. Wrong: who asks for much or little has more or less than its share.
const (
	latest        = 0.4          // of what one is taken to have
	mostFix       = 4.0          // times one's part, or a part of it
	dear          = 0.06         // of a round: switches among those who could take turns
	leastTogether = 2 * shortest // of a round
	useless       = 0.5          // of the round that was computed, and still somebody is behind: it does not ask for so much
	resting       = 60           // plans
	// The rest of a step may be as long as a slice, and looks like one that was cut; and programs do small things when they begin.
	believed   = 3
	mostSeen   = 8
	remembered = 16 // turns of a process (pace.go)
)

// Those who are never off (around.go). From: chosen. Wrong: what others leave is not given, or given to who cannot use it.
const (
	aroundRecent = 500 * time.Millisecond
	aroundFull   = 0.95
	aroundAlike  = 1.5  // times: those who are never off use as much beside those who are as without them
	aroundSlack  = 0.05 // of the time
)

// What a control call takes of a core. From: measured. Wrong, small: vgpud takes more of a core than it may; large: shares follow later than they could.
const (
	CostDisable = 700 * time.Microsecond // up to 64 channels off or on
	CostSlice   = 300 * time.Microsecond
	CostLook    = 300 * time.Microsecond // at the log, with what is new in it
)

// What vgpud may take of a core (budget.go, starting.go). From: chosen, the first two together 2 %. Wrong, small: shares follow late; large: jobs miss
// the core.
const (
	ofChanges   = 0.015
	ofLooks     = 0.005
	ofNames     = 0.004               // of each job
	savedNames  = 128 * 2 * CostSlice // what a job's processes name when they begin
	saved       = time.Second         // for as long what was not spent is kept
	oneMore     = time.Microsecond    // beyond what is spent: a wait of nothing would be asked for again at once
	ofStarts    = 0.25                // of the time for which somebody may count as one that starts
	savedStarts = 4 * time.Second     // of starts at once
	longestGone = time.Second         // between two questions, which come twice a second while somebody begins
)

// Who follows its share by slices, and who has to take turns (follow.go). From: chosen, by plays of test/timeslices. Wrong: a slice has less than its share.
const (
	asks    = 0.95                   // of what it could have alone, as others cost it something
	waited  = 1.2                    // times the others' turns: a longer pause is its own
	starved = 0.5                    // of what they are due
	heavy   = 0.3                    // of its time on: whoever uses less of it would leave the GPU idle in its turn
	aSwitch = 250 * time.Microsecond // measured
)

// Caps (hold.go).
const (
	// Of the cap's part: what a burst may have at once; and of it. From: chosen. Wrong, small: a program that pauses has less than its cap; large: others
	// are late by a burst.
	keptCredit = 250 * time.Millisecond
	mostCredit = 50 * time.Millisecond
	// Of GPU time; and for how long what is owed is paid back, either way. From: chosen. Wrong, small: the cap is passed; large: a program stands still.
	mostDebt = 500 * time.Millisecond
	paidBack = time.Second
	// Of its cap, while it pays back. From: chosen. Wrong, small: a program stands still for seconds.
	leastPart = 0.2
	// Over which what it used is looked at. From: chosen, two looks and more. Wrong, small: the cap follows noise; large: late.
	recent = 500 * time.Millisecond
	// Of what it could have had: whoever takes as much takes all that it can have. From: chosen, a meter is wrong by less. Wrong, small: the cap follows
	// late; large: who pauses is held for nothing.
	takes = 0.9
	// Of a period: those who may be on for nearly as long are put off in one call. From: chosen. Wrong, small: the calls take a core; large: a cap is coarse.
	atOnce = 0.03
	// Of the GPU, by which a slice may be beyond its cap before it is kept off for it. From: measured, a meter is no better. Wrong: calls for nothing.
	heldSlack = 0.004
	// Of the GPU: a cap of as much is none. From: chosen. Wrong: as above.
	allOfIt = 0.995
	// With its two calls of 0.7 ms. From: measured. Wrong, small: the calls take a core; large: the cap is coarse.
	leastOff = 4 * time.Millisecond
	leastOn  = 3 * time.Millisecond
	// How long one round off and on is: of one alone, of one beside others, at most, and for each of many. From: chosen, by leastOff and the budget. Wrong:
	// as above.
	lonePeriod = 100 * time.Millisecond
	heldPeriod = 50 * time.Millisecond
	mostPeriod = 200 * time.Millisecond
	eachOfMany = 12500 * time.Microsecond
	// How much time off is looked at before one is judged by it: a meter lags behind by a tenth of a second. From: chosen. Wrong, small: noise is taken for a program that runs while off.
	checkedFor = time.Second
)

// Verdicts (judge.go). Wrong, small: an honest step is frozen; large: one that is not has more than its share for longer.
const (
	// A handle may be another group's by now, once: that of a process that made one anew between two looks. From: chosen.
	strikesOfSlice = 2
	// Who is honest at two looks of three is not, and one that was honest once is not beyond doubt. From: chosen.
	pardon = 0.5
	// From: measured, 1,200 times off and on no process ran on for longer than the call; the clocks of GPU and node are compared to a millisecond.
	ranOff     = 5 * time.Millisecond
	ranOffPart = 0.2
	strikesRan = 2
	// From: measured, of one that always has work 6 switches of 373 wait; of one that makes them wait, all, and its turns are as long as its kernels. So may
	// be those of one whose steps end by themselves, but then others have their part. A program that has no more than its part does no harm by it.
	waitedPart  = 0.75
	tooMuch     = 0.05
	strikesWait = 3
	// Whoever makes and drops contexts in a test has some at once that are no longer there at the next look. From: chosen.
	strikesRoom = 2
	// From: measured, a context takes the driver 0.15 s and more, so a program makes seven in a second; at its start as many as its page has room for.
	mostMade       = 64
	madeEachSecond = 8
	// The library writes a group down when it is made, before memory can be taken. From: chosen.
	hidden        = 2 * time.Second
	strikesHidden = 3 // one look that comes late has seen no more than one in time
	// FreezeFor is how long a step is frozen. From: chosen.
	FreezeFor = 10 * time.Second
	// How often it is frozen before it is killed; and for how long a process of a job stands still at its beginning of which a step was killed, doubled
	// with each. From: chosen.
	mostFrozen   = 2
	firstDelay   = 4 * time.Second
	longestDelay = 64 * time.Second
)

// The meter (meter.go, off.go, rota.go).
const (
	// What a turn takes of the time for which a process is resident: one that was cut, and one that ended by itself. From: measured. Wrong: a job's GPU time
	// is counted too high or too low.
	cutTakes  = 145 * time.Microsecond
	leftTakes = 60 * time.Microsecond
	// Of the GPU: whoever is idle leaves at once, so resident less the turns is busy. From: chosen. Wrong: as above.
	full = 0.97
	// A group counts as one with work for as long after its last turn. From: chosen. Wrong, small: a slice with pauses loses its part; large: the others
	// have less while it has ended.
	atWork = time.Second
	// Of its slice: a turn of that length was ended by it; and beyond its slice: nobody else had work, or the turn could not be ended. From: chosen. Wrong:
	// an honest step counts as one that cannot be cut.
	mostOfSlice = 0.95
	overlong    = time.Millisecond
	// libcuda's slice, where none was set. From: the driver, 580. Wrong: as above, until vgpud sets one.
	ofTheDriver = 2048 * time.Microsecond
	// A call's time is read around it, and what runs leaves a moment later. From: measured. Wrong, small: honest steps count as running while off.
	clocksDiffer = time.Millisecond
	// A record comes at the latest. From: chosen. Wrong, small: as above.
	late = 2 * time.Second
	// Turns that a rota remembers. From: chosen. Wrong: memory of vgpud.
	mostRemembered = 1000
)
