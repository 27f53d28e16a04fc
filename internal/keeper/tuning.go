// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import "time"

// Each number of this package that was measured or chosen, once. From: where it was measured, or that it was chosen; Wrong: what breaks if it is. A
// comment stands for what follows it up to the next one. A time has its unit in its type. Measured was on an H200 with driver 580: of another GPU look
// first at that. internal/share, which asks nobody, has its own.

// The loop (loop.go, samples.go, nvml.go).
const (
	// Between two looks at a GPU; where somebody's credit is counted; and where nobody who could be at work was, for so many looks. From: measured, a look is
	// 1.6 ms of a core, most of it NVML's counters, which say nothing of a time shorter than the second; the third takes less than a thousandth of a core.
	// Wrong, small: vgpud takes more of a core than it may; large: shares follow late.
	lookEach    = 200 * time.Millisecond
	latencyEach = 100 * time.Millisecond
	quietEach   = 2 * time.Second
	quietAfter  = 10
	// Of a GPU that a driver's own work may take; and a part of the time that is nobody's work. From: chosen. Wrong, small: a quiet node is looked at as a
	// busy one; large: a program that works little is not seen.
	quietPart = 0.005
	idle      = 0.005
	// Of a slice: it is not set again for less. From: chosen. Wrong, small: calls for nothing; large: shares are off by it.
	sliceDiffers = 0.02
	// Between two plans. From: chosen. Wrong, small: changes for nothing; large: shares follow late.
	planEach = 500 * time.Millisecond
	// For how long after a beginning the GPU's counter shows what capped slices did while nobody held them, which they pay back anyway. From: measured, it is
	// a tenth of a second behind, and NVML has to be begun. Wrong, small: they pay twice; large: they have more than their cap for it.
	counterBehind = 400 * time.Millisecond
	// GPUs that are looked at half as often, as all looks of a node together have to be cheap. From: chosen. Wrong: as lookEach.
	manyGPUs = 4
	// How often NVML is asked who has memory of a GPU; who is at work, where that is not known; and for programs of slices with caps where no page names any.
	// From: chosen; it takes some milliseconds to begin. Wrong, small: vgpud takes more of a core; large: a program without names is seen late.
	holdersEach = 500 * time.Millisecond
	onlyEach    = 500 * time.Millisecond
	unseenEach  = 30 * time.Second
	// Until NVML is tried to be opened again. From: chosen. Wrong, small: a broken driver takes a core; large: figures are missing for longer.
	nvmlEach = time.Minute
	// Long enough for NVML to have a sample. From: chosen. Wrong, small: nobody seems to be at work.
	justNow = time.Second
	// How long the end waits for what is asked beside the loop. From: chosen. Wrong, large: vgpud ends late.
	endWait = 100 * time.Millisecond
)

// What a worker says (heart.go), by which its supervisor and systemd know that it goes on.
const (
	// How often while it holds something, and how often otherwise. From: chosen. Wrong, small: two processes are woken for nothing; large: who is off stays so
	// for longer when the worker hangs.
	beatEach    = 15 * time.Millisecond
	workingEach = time.Second
	// For how long it may say nothing: while it holds something, and otherwise. From: chosen. Wrong, small: a worker on a busy node is replaced; large: as above.
	holdingSilence = 3 * beatEach
	workingSilence = 10 * time.Second
	// For how long the loop may get on with nothing while somebody is off, as when the driver makes a control call wait for its lock. From: measured, whoever
	// makes contexts has it for tens of milliseconds. Wrong, small: another worker would wait for the same lock; large: as above.
	mostStall = time.Second
)

// Off and on (off.go, caps.go, refuse.go).
const (
	// Between two looks at whose turn it is. From: chosen. Wrong, small: vgpud takes more of a core; large: turns are late by it.
	leastWait = 2 * time.Millisecond
	// For how long somebody stays off beyond the turn of another because the budget is spent. From: chosen. Wrong, large: a program stands still for it.
	mostWait = 200 * time.Millisecond
	// Until one that is let on can be on. From: measured, a call takes 0.7 ms. Wrong: its time off is counted too long or short.
	halfACall = 400 * time.Microsecond
	// Between those who are put off in one call. From: chosen. Wrong, small: more calls; large: a cap is passed by it.
	atOnce = 500 * time.Microsecond
	// Less than whoever wants his client's number to become another's takes for it. From: chosen; the driver counts through a million before. Wrong, large: a
	// user could have another's program put off.
	verifyEach = time.Second
	// Calls in a row that may fail before a GPU is left to the library. From: chosen. Wrong, small: one that ends is enough; large: caps are held by nobody.
	triesToHold = 3
	// WaitForState is how long to wait for the state's lock. From: chosen. Wrong, small: a GPU counts as held that is not; large: vgpud stands for it.
	WaitForState = 10 * time.Second
)

// Who has turns of its own though it uses little (together.go). From: chosen. Wrong: the GPU is idle in its turns, or it goes back and forth.
const (
	passes = 0.5 // of its part: who uses less leaves the GPU idle in turns of its own, as nobody else is on
	passed = 4   // plans in a row
	apart  = 60  // plans for which it is one of the others
)

// Names on pages (names.go, node.go, scout.go, heirs.go).
const (
	// How often it is tried again for whom there was nothing left of the budget. From: chosen. Wrong, large: a program is not held for it.
	askEach = 500 * time.Millisecond
	// Until all processes of the node are looked through once more because of a page that names some that are not there; for how long these are remembered,
	// and how many: a page that names others each time has them looked for anew, and no more memory. From: chosen. Wrong, small: a user can take a core of
	// vgpud's; large: a program is held late.
	firstTry   = 200 * time.Millisecond
	longestTry = time.Second
	missedFor  = 30 * time.Second
	mostMissed = 64 << 10
	// Until what was found of jobs that are gone is dropped: a job may have a thousand processes, and its page be written without end. From: chosen. Wrong,
	// small: vgpud takes more of a core; large: memory.
	forgetEach = time.Second
	// The least time between two looks at the node: who changes his groups page without end has no more looks than this. From: chosen. Wrong: as above.
	scoutEach = 10 * time.Millisecond
	// When something was not there yet: at first soon, as a prolog may wait; at most; for so often. From: chosen. Wrong, small: as above; large: a job starts late.
	again     = 5 * time.Millisecond
	mostAgain = 50 * time.Millisecond
	mostTried = 100
	// What looks may take of a core, with scoutSaved at once; and the most that others' new processes wait because of one who writes to his page without end.
	// From: chosen. Wrong, small: new programs are held late; large: jobs miss the core.
	ofScout     = 0.02
	scoutSaved  = 250 * time.Millisecond
	longestRest = 500 * time.Millisecond
	// For how long heirs of a descriptor are looked for at once, how many, and how often while the same ones stand there; less often where a look takes longer:
	// a user decides how many processes he has, with how many descriptors. From: chosen. Wrong, small: an heir is not found; large: the loop stands for it.
	heirsWithin = 250 * time.Millisecond
	mostHeirs   = 256
	heirsEach   = 5 * time.Second
)

// Processes that come and go (judge.go, orphan.go, tenant.go). Wrong, small: an honest program is frozen; large: one that is not has more for longer.
const (
	// A line of the log on one thing of a job: who goes on cheating must not fill it. From: chosen.
	logEach = time.Minute
	// What was seen of a process that has ended counts for the next ones of its job. From: chosen.
	inheritFor = 10 * time.Second
	// Longer than NVML takes to name it still. From: chosen.
	diedFor = 10 * time.Second
	// Longer than the log and NVML need to say what a process did. Short programs one after the other open and close nothing meanwhile. From: chosen.
	lateFor = time.Second
	// Of a GPU, from which on it is full, and of a share, by which somebody has less: then it counts who makes others wait. From: chosen.
	othersFull = 0.9
	othersLess = 0.02
	// Longer than a process that begins needs the GPU for it. From: chosen.
	startsFor = time.Second
)

// Freezing and killing (freeze.go, record.go).
const (
	// Looks at who is left of a step that is killed, or frozen under cgroup v1; and between two. From: chosen, a second for the first. Wrong, small: a step counts
	// as killed or frozen that is not; large: the loop stands for it.
	mostKills  = 100
	killWait   = 10 * time.Millisecond
	freezeWait = time.Millisecond
	// More than vgpud ever has to undo: a record beyond it was not written by it. From: chosen. Wrong, small: somebody stays off after a crash.
	maxRecordBytes = 4 << 20
)
