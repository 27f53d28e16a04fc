// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Each number of this package that was measured or chosen, once, with its own comment. From: where the number was measured, or that it was chosen. Wrong:
// the harm of a number that is too small or too large. The type gives the unit of a time. Measured is on an H200 with driver 580
// (docs/verified/time-from-outside.md), unless the comment names another: for another GPU read that first. internal/keeper has its own numbers.

// Rounds of time slices (rule.go).
const (
	// The round has this for each tenant that works. From: measured, a switch costs 0.24 ms, 3 % of this. Wrong, small: switches take the GPU's time; large: a
	// program waits long for its round.
	roundOfEach = 8 * time.Millisecond
	// The same while a process begins, which waits for a round again and again. From: measured, a switch is 11 % of this. Wrong: as above.
	roundOfStart = 2 * time.Millisecond
	// The shortest round in which all tenants always have work. From: chosen. Wrong: as above.
	leastRound = 20 * time.Millisecond
	// The longest round, for a job of many groups. From: chosen. Wrong: as above.
	mostRound = 100 * time.Millisecond
	// The time slice of each of many groups, as long as mostRound allows it. From: chosen, four switches. Wrong: as above.
	leastOfMany = time.Millisecond
	// The time slice of a sleeper, for all its groups together: no step is cut. From: chosen. Wrong, small: the sleeper has less than its share.
	longSlice = 100 * time.Millisecond
	// The shortest time slice beside a sleeper. From: chosen. Wrong, small: switches take the GPU's time; large: the sleeper has less than its share.
	shortest = 100 * time.Microsecond
	// A turn, on average. From: chosen, by CostDisable, as a turn is two calls. Wrong, small: the calls take a core; large: a program that is off stands still.
	turn = 100 * time.Millisecond
	// The shortest turn. From: chosen. Wrong: as above.
	leastTurn = 5 * time.Millisecond
	// Part of a tenant's turns: a tenant that always has work ends fewer by itself. From: chosen. Wrong, large: a sleeper counts as always at work.
	leftOften = 0.1
	// Part of the GPU: a smaller difference changes nothing. From: chosen, the meter is no better. Wrong, small: calls for nothing; large: shares are off by it.
	slack = 0.005
	// The others' time slice beside the latency class. From: measured, a request of 5 ms ends after 5.28 ms at p99, and after 7.31 beside 2 ms. Wrong, large:
	// requests are late.
	besideLatency = 50 * time.Microsecond
	// A round of turns together has this for each GPU. From: measured, two changes in it of two calls of 0.7 ms are 1.1 % of a core. Wrong: as turn.
	togetherEach = 250 * time.Millisecond
)

// All sleep (alike.go). From: chosen, by plays of the loop (internal/keeper/shares_test.go). Wrong: a tenant that asks for much or little has more or less than its share.
const (
	// Weight of the last window in the average of what a tenant used. From: chosen.
	latest = 0.4
	// A tenant's part grows or shrinks by at most this factor. From: chosen.
	mostFix = 4.0
	// Part of a round: where switches between the short time slices take more, the tenants take turns. From: chosen.
	dear = 0.06
	// The shortest round. From: chosen.
	leastTogether = 2 * shortest
	// Part of the computed round: a round that was trimmed below it does not help, as the tenant that is behind does not ask for its share. From: chosen.
	useless = 0.5
	// Plans without this rule after that. From: chosen.
	resting = 60
	// Windows in which a step was seen before it counts. The rest of a step can be as long as a time slice and looks like a cut; programs do small things when
	// they begin. From: chosen.
	believed = 3
	// The count of such windows goes no higher, so that a changed program is noticed after so many. From: chosen.
	mostSeen = 8
	// Turns of a process from which step and pause are computed (pace.go). From: chosen.
	remembered = 16
)

// A GPU on which capped tenants are off for a part of the time (around.go). From: chosen. Wrong: the time that others leave is not given, or goes to a tenant
// that cannot use it.
const (
	// Looks count for this long. From: chosen.
	aroundRecent = 500 * time.Millisecond
	// Part of the time: an engine that is at work for as much is full. From: chosen.
	aroundFull = 0.95
	// Tenants that are never off use at most so many times as much while the others are on as while these are off. From: chosen.
	aroundAlike = 1.5
	// Part of the time: less time off is no evidence. From: chosen.
	aroundSlack = 0.05
	// Part of the time: a tenant's use beyond its residence, where the GPU is not full (divide.go). Wrong, small: one that pauses is counted short; large: it
	// pays for the switches that a neighbour's small kernels cost. From: chosen.
	besideSwitches = 0.05
)

// Time of a core that a control call takes. From: measured: disabling took 0.64 to 0.76 ms, 64 channels 0.99, a time slice 0.23 to 0.54 (section 3);
// 50 looks a second are 1 to 6 % of a core. Wrong, small: vgpud takes more of a core than it may; large: shares follow late.
const (
	CostDisable = 700 * time.Microsecond // up to 64 channels off or on
	CostSlice   = 300 * time.Microsecond // one time slice
	CostLook    = 300 * time.Microsecond // the log, with all new records
)

// The budget of vgpud (budget.go, starting.go). From: chosen; changes and looks together are 2 % of a core. Wrong, small: shares follow late; large: jobs miss
// the core.
const (
	ofChanges = 0.015 // of a core, for calls that change something
	ofLooks   = 0.005 // of a core, for looks at the log
	ofNames   = 0.004 // of a core, for the names on the page of each job
	// Saved at most for names: as many as a job's processes write when they begin. From: chosen.
	savedNames = 128 * 2 * CostSlice
	// Unspent budget is kept for as long. From: chosen.
	saved = time.Second
	// Added to a wait, so that the wait is never 0. From: chosen.
	oneMore = time.Microsecond
	// Part of the time for which processes that begin may shorten the rounds. From: chosen.
	ofStarts = 0.25
	// The same, saved at most. From: chosen.
	savedStarts = 4 * time.Second
	// Most time that counts between two calls of Starting.Afford, which come twice a second while a process begins. From: chosen.
	longestGone = time.Second
)

// Sleepers and takers (follow.go). From: chosen, by plays of the loop (internal/keeper/shares_test.go). Wrong: a tenant has less than its share.
const (
	// Part of the use that a tenant could have alone: beside others it asks for so much. From: chosen.
	asks = 0.95
	// A pause longer than so many times the others' turns is the program's own. From: chosen.
	waited = 1.2
	// Part of their due: tenants that always have work keep as much beside sleepers. From: chosen.
	starved = 0.5
	// Part of the time: a tenant that uses less of its time on would leave the GPU idle in a turn of its own. From: chosen.
	heavy = 0.3
	// The time of a switch. From: measured, 0.24 ms where a turn is cut.
	aSwitch = 250 * time.Microsecond
)

// Caps (hold.go).
const (
	// The credit is what the cap gives in this time. From: chosen. Wrong, small: a program that pauses has less than its cap; large: neighbours wait for a burst.
	keptCredit = 250 * time.Millisecond
	// The most credit, whatever the cap. From: chosen. Wrong: as above.
	mostCredit = 50 * time.Millisecond
	// The most GPU time that is owed. From: chosen. Wrong, small: the cap is passed; large: a program stands still.
	mostDebt = 500 * time.Millisecond
	// Credit and debt are evened out in this time. From: chosen. Wrong, small: a program stands still; large: the cap is passed for longer.
	paidBack = time.Second
	// Part of its cap that a slice has at least while it pays back. From: chosen. Wrong, small: a program stands still for seconds.
	leastPart = 0.2
	// Use counts for as long (demand.go). From: chosen, two looks and more. Wrong, small: the cap follows noise; large: the cap follows late.
	recent = 500 * time.Millisecond
	// Part of the use that a slice could have had: a slice that uses more asks for all. From: chosen, a meter is wrong by less. Wrong, small: a cap follows late;
	// large: a program that pauses is held for nothing.
	takes = 0.9
	// Part of a period: slices whose times end as close together are put off in one call. From: chosen. Wrong, small: calls take a core; large: a cap is coarse.
	atOnce = 0.03
	// Part of the GPU by which a slice may pass its cap before it is kept off. From: measured, a meter is no better. Wrong, small: calls for nothing; large: the
	// cap is passed.
	heldSlack = 0.004
	// Part of a time: a slice that was on for more was on all the time. From: chosen. Wrong, small: the cap is passed; large: calls for nothing.
	allOfIt = 0.995
	// The shortest time off. From: measured, it is two calls of 0.7 ms. Wrong, small: the calls take a core; large: the cap is coarse.
	leastOff = 4 * time.Millisecond
	// The shortest time on. From: chosen. Wrong: as above.
	leastOn = 3 * time.Millisecond
	// The period of a slice alone on its GPU. From: chosen, the counter says nothing of less. Wrong, small: the calls take a core; large: the cap is coarse.
	lonePeriod = 100 * time.Millisecond
	// The period beside other slices. From: chosen, by leastOff and the budget. Wrong: as above.
	heldPeriod = 50 * time.Millisecond
	// The longest period while few calls are needed. From: chosen. Wrong: as above.
	mostPeriod = 200 * time.Millisecond
	// The period has at least this for each call. From: chosen, at most 11 % of a core. Wrong: as above.
	eachOfMany = 12500 * time.Microsecond
	// Time off before a slice is judged by it. From: chosen, a meter is late by a tenth of a second. Wrong, small: noise counts as a program that runs while off.
	checkedFor = time.Second
)

// Verdicts (judge.go). Wrong, small: an honest step is frozen; large: a step that cheats has more than its share for longer.
const (
	// Looks at a changed time slice. A handle can belong to another group once, where a process made a new context between two looks. From: chosen.
	strikesOfSlice = 2
	// An honest look takes this off the count: a process that is honest at one look of three is still found. From: chosen.
	pardon = 0.5
	// Time that a process may run while it is off. From: measured, in 1,200 times no process ran on for longer than the call; clocks compare to a millisecond.
	ranOff = 5 * time.Millisecond
	// The same, as a part of the time off. From: chosen.
	ranOffPart = 0.2
	// Looks in a row at such a process. From: chosen.
	strikesRan = 2
	// Part of the switches that wait until the process is idle. From: measured, 6 of 373 of a program that always has work, and all of a program that makes
	// them wait.
	waitedPart = 0.75
	// Part of the GPU beyond its due: a program below that does no harm, however its steps end. From: chosen.
	tooMuch = 0.05
	// Looks in a row at a process that makes switches wait, or has more than its due by unheld channels. From: chosen.
	strikesWait = 3
	// Looks in a row at groups without room. A test that makes and drops contexts has some for a moment. From: chosen.
	strikesRoom = 2
	// Groups that a process may make at once: as many as its page has room for. From: chosen.
	mostMade = 64
	// Groups that a process may make in a second. From: measured, a context takes the driver 0.15 s and more, so a program makes seven.
	madeEachSecond = 8
	// Time in which memory of the GPU has no handle. The library writes a group down when it is made, before memory can be taken. From: chosen.
	hidden = 2 * time.Second
	// Looks in a row at that: a look that comes late has seen no more than a look in time. From: chosen.
	strikesHidden = 3
	// FreezeFor is how long a step is frozen. From: chosen.
	FreezeFor = 10 * time.Second
	// A step is frozen so often before it is killed. From: chosen.
	mostFrozen = 2
	// A process of a job of which one step was killed stands still for as long when it begins; each further kill doubles the time. From: chosen.
	firstDelay = 4 * time.Second
	// The longest such time. From: chosen.
	longestDelay = 64 * time.Second
)

// The meter (meter.go, off.go, rota.go).
const (
	// Part of its residence in which a process that was cut does no work. From: measured, with these two residence is use within half a point. Wrong: a
	// job's GPU time is counted too high or too low.
	cutTakes = 145 * time.Microsecond
	// The same for a turn that ended by itself. From: measured. Wrong: as above.
	leftTakes = 60 * time.Microsecond
	// Part of the time: an engine that is at work for more is full. Then residence less the turns is use, as an idle program leaves at once. From: chosen. Wrong:
	// as above.
	full = 0.97
	// A group works until this long after its last turn. From: chosen. Wrong, small: a slice with pauses loses its part; large: the others have less after a job.
	atWork = time.Second
	// Part of its time slice: a longer turn was ended by the time slice. From: chosen. Wrong, small: a sleeper counts as always at work; large: the reverse.
	mostOfSlice = 0.95
	// A turn that is this much longer than its time slice could not be ended, or no other program had work. From: chosen. Wrong, small: an honest step counts as
	// a step that cannot be cut.
	overlong = time.Millisecond
	// libcuda's time slice, until vgpud sets one. From: the driver, 580. Wrong: as mostOfSlice.
	ofTheDriver = 2048 * time.Microsecond
	// The time of a call is read before and after it, and a running program leaves a moment later. From: measured. Wrong, small: an honest step counts as running
	// while off.
	clocksDiffer = time.Millisecond
	// Records of the log come within this time. From: chosen. Wrong, small: as above.
	late = 2 * time.Second
	// Turns that a rota remembers. From: chosen. Wrong, small: a process that comes back has a turn too many; large: memory of vgpud.
	mostRemembered = 1000
)
