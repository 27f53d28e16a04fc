// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import "time"

// Each number of this package that was measured or chosen, once, with its own comment. From: where the number was measured, or that it was chosen. Wrong:
// the harm of a number that is too small or too large. The type gives the unit of a time. Measured is on an H200 with driver 580: for another GPU read that
// first. internal/share, which does no I/O, has its own numbers.

// The loop (loop.go, samples.go, nvml.go).
const (
	// Between two looks at a GPU. From: measured, a look is 1.6 ms of a core, mostly for NVML's counters, which say nothing of much less time. Wrong, small:
	// vgpud takes more of a core than it may; large: shares follow late.
	lookEach = 200 * time.Millisecond
	// The same while a slice of the latency class works, whose credit is counted at each look. From: chosen. Wrong: as above.
	latencyEach = 100 * time.Millisecond
	// The same on a quiet GPU. From: measured, this is less than a thousandth of a core. Wrong: as above.
	quietEach = 2 * time.Second
	// Looks without work after which a GPU is quiet. From: chosen. Wrong: as above.
	quietAfter = 10
	// Part of a quiet GPU that the driver's own work may take. From: chosen. Wrong, small: a quiet node is looked at as a busy one; large: a program that
	// works little is not seen.
	quietPart = 0.005
	// Part of a time: an engine that worked less did no program's work. From: chosen. Wrong: as above.
	idle = 0.005
	// Part of a time slice: a smaller change is not set. From: chosen. Wrong, small: calls for nothing; large: shares are off by it.
	sliceDiffers = 0.02
	// Between two plans. From: chosen. Wrong, small: changes for nothing; large: shares follow late.
	planEach = 500 * time.Millisecond
	// Time after vgpud's begin in which the GPU's counter still shows use from before, which capped slices pay back by their page. From: measured, the counter is
	// late by a tenth of a second, and NVML has to begin. Wrong, small: the slices pay twice; large: they have more than their cap for it.
	counterBehind = 400 * time.Millisecond
	// With more GPUs each is looked at half as often, as all looks of a node share the budget. From: chosen. Wrong: as lookEach.
	manyGPUs = 4
	// Between two queries of NVML for the processes that have memory of a GPU. From: chosen, NVML takes some milliseconds. Wrong, small: vgpud takes more of a
	// core; large: a program without names is seen late.
	holdersEach = 500 * time.Millisecond
	// The same for the process that is on, where the log has not shown it. From: chosen. Wrong: as above.
	onlyEach = 500 * time.Millisecond
	// The same for programs of capped slices that no page names. From: chosen. Wrong: as above.
	unseenEach = 30 * time.Second
	// Between two tries to open NVML. From: chosen. Wrong, small: a broken driver takes a core; large: figures are missing for longer.
	nvmlEach = time.Minute
	// NVML has a sample from within this time. From: chosen. Wrong, small: no process seems to work.
	justNow = time.Second
	// The end waits as long for queries beside the loop. From: chosen. Wrong, large: vgpud ends late.
	endWait = 100 * time.Millisecond
)

// Words from a worker (heart.go), by which its supervisor and systemd see that it runs.
const (
	// Between two words while the worker holds a program. From: chosen. Wrong, small: two processes are woken for nothing; large: a program stays off for longer
	// when the worker hangs.
	beatEach = 15 * time.Millisecond
	// The same while it holds none. From: chosen. Wrong: as above.
	workingEach = time.Second
	// The longest silence while the worker holds a program. From: chosen. Wrong, small: a worker on a busy node is replaced; large: as above.
	holdingSilence = 3 * beatEach
	// The same while it holds none. From: chosen. Wrong: as above.
	workingSilence = 10 * time.Second
	// The longest time without progress of the loop while a program is off, as a control call can wait for the driver's lock. From: measured, a process that makes
	// contexts has the lock for tens of milliseconds. Wrong, small: another worker would wait for the same lock; large: as above.
	mostStall = time.Second
)

// Off and on (off.go, caps.go, refuse.go).
const (
	// The shortest wait for the next turn. From: chosen. Wrong, small: vgpud takes more of a core; large: turns are late by it.
	leastWait = 2 * time.Millisecond
	// The longest time that a program stays off beyond another's turn because the budget is spent. From: chosen. Wrong, large: a program stands still for it.
	mostWait = 200 * time.Millisecond
	// From the begin of a call until the program is on. From: measured, a call takes 0.7 ms. Wrong: its time off is counted too long or short.
	halfACall = 400 * time.Microsecond
	// Slices whose times end as close together are put off in one call. From: chosen. Wrong, small: more calls; large: a cap is passed by it.
	atOnce = 500 * time.Microsecond
	// A group's owner is verified again after this time. From: chosen, less than the driver needs to give the same client number again: it counts through a
	// million before. Wrong, large: a user could have another user's program put off.
	verifyEach = time.Second
	// So many calls in a row may fail before a GPU is left to the library. From: chosen. Wrong, small: a program that ends is enough; large: caps are not kept.
	triesToHold = 3
	// WaitForState is the longest wait for the state's lock. From: chosen. Wrong, small: a GPU counts as held that is not; large: vgpud stands for it.
	WaitForState = 10 * time.Second
)

// Jobs on several GPUs that use little of their turns (together.go). From: chosen. Wrong: the GPU is idle in such turns, or the job changes back and forth.
const (
	// Part of its due: a job that uses less leaves the GPU idle in its turns, as no other program is on.
	passes = 0.5
	// Plans in a row with such use, after which the job has no turns of its own.
	passed = 4
	// Plans without turns of its own after that.
	apart = 60
)

// Names on pages (names.go, node.go, scout.go, heirs.go).
const (
	// Between two tries for a process that waits for budget. From: chosen. Wrong, large: a program is not held for it.
	askEach = 500 * time.Millisecond
	// A page names processes that are not there: the first wait until all processes of the node are read again. From: chosen. Wrong, small: a user can take a
	// core of vgpud's; large: a program is held late.
	firstTry = 200 * time.Millisecond
	// The longest such wait. From: chosen. Wrong: as above.
	longestTry = time.Second
	// Missed processes are remembered for as long. From: chosen. Wrong: as above.
	missedFor = 30 * time.Second
	// So many missed processes are remembered: a page with other names each time costs a search, and no more memory. From: chosen. Wrong, large: memory.
	mostMissed = 64 << 10
	// Between two times at which findings on ended jobs are dropped: a job may have a thousand processes and write its page without end. From: chosen. Wrong,
	// small: vgpud takes more of a core; large: memory.
	forgetEach = time.Second
	// The shortest time between two looks at the node, however often a user changes his groups page. From: chosen. Wrong: as above.
	scoutEach = 10 * time.Millisecond
	// A file was not there yet: the first wait, short because a prolog may wait. From: chosen. Wrong, small: as above; large: a job starts late.
	again = 5 * time.Millisecond
	// The longest such wait. From: chosen. Wrong: as above.
	mostAgain = 50 * time.Millisecond
	// The number of such looks. From: chosen. Wrong: as above.
	mostTried = 100
	// Part of a core that looks at the node may take. From: chosen. Wrong, small: new programs are held late; large: jobs miss the core.
	ofScout = 0.02
	// The same, saved at most. From: chosen. Wrong: as above.
	scoutSaved = 250 * time.Millisecond
	// The longest wait of new programs because another user writes to his page without end. From: chosen. Wrong: as above.
	longestRest = 500 * time.Millisecond
	// The longest search for heirs of a descriptor. From: chosen. Wrong, small: an heir is not found; large: the loop stands for it.
	heirsWithin = 250 * time.Millisecond
	// The most heirs of a search, as a user decides how many processes and descriptors he has. From: chosen. Wrong: as above.
	mostHeirs = 256
	// Between two searches while the same processes stand there; more where a search takes longer. From: chosen. Wrong: as above.
	heirsEach = 5 * time.Second
)

// Processes that come and go (judge.go, orphan.go, tenant.go). From: chosen. Wrong, small: an honest program is frozen; large: a cheating program has more for
// longer.
const (
	// Between two lines of the log on one finding of a job, so that a process that goes on cheating does not fill the log.
	logEach = time.Minute
	// Findings on an ended process count for the next processes of its job.
	inheritFor = 10 * time.Second
	// An ended process is remembered: longer than NVML still names it.
	diedFor = 10 * time.Second
	// The figures of an ended process are waited for: longer than the log and NVML need. Meanwhile short programs one after the other open and close nothing.
	lateFor = time.Second
	// Part of the GPU: with more use it is full, and a process that makes others wait counts.
	othersFull = 0.9
	// Part of the GPU: a tenant that is below its share by more has less because of others.
	othersLess = 0.02
	// A process that begins needs the GPU for less time.
	startsFor = time.Second
)

// Freezing and killing (freeze.go, record.go).
const (
	// Looks at the processes that are left of a killed step, or of a step frozen under cgroup v1. From: chosen, a second for a killed one. Wrong, small: a step
	// counts as killed or frozen that is not; large: the loop stands for it.
	mostKills = 100
	// Between two such looks at a killed step. From: chosen. Wrong: as above.
	killWait = 10 * time.Millisecond
	// The same at a frozen step. From: chosen. Wrong: as above.
	freezeWait = time.Millisecond
	// The largest record that is read: vgpud never has to undo as much, so a larger file is not vgpud's. From: chosen. Wrong, small: a program stays off after a
	// crash.
	maxRecordBytes = 4 << 20
)
