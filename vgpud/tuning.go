// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Each number of this program that was chosen, once; what vgpud does with time itself has its own in internal/keeper and internal/share. From: chosen, all of
// them. Wrong: what breaks.
const (
	// Between workers that die again and again, at first and at most. Wrong, small: they take a core; large: caps are not held for it.
	firstPause   = 50 * time.Millisecond
	longestPause = 10 * time.Second
	// Of a worker that has not died early. Wrong, small: as above, both ways.
	shortestLife = 500 * time.Millisecond
	// A worker ends within this time, or is killed. Wrong, small: the supervisor has to let programs go; large: vgpud ends late.
	endsWithin = 500 * time.Millisecond
	// The same before it reads its configuration again, or is replaced. Wrong, small: on a busy node another worker begins; large: a hung one reads it late.
	readsWithin = 10 * time.Second
	// How often the supervisor takes note that the worker still does the same. Wrong, small: each word wakes it; large: systemd takes it for one that hangs.
	sentEach = 250 * time.Millisecond
	// For a word that is there although the supervisor was late. Wrong, small: a worker on a busy node is replaced.
	lateWord = time.Millisecond
	// The priority that it runs with, the first there is (nice(1)). Wrong, large: a worker on a node whose jobs have all cores looks like one that hangs.
	firstPriority = -20
	// A command that looks whether vgpud runs has its lock for less. Wrong, small: vgpud does not start beside such a look.
	lockWait = time.Second
	// The priority of the commands beside the shares (nice(1)). Wrong, small: it takes time from jobs.
	lastPriority = 10
	// An empty node is looked at so often. Wrong, small: it costs something; large: a process that uses a GPU without a job is found late.
	emptyEach = 15 * time.Minute
	// The first time of a command comes after this part of its time, to twice that. Wrong, large: the nodes of a cluster that boot together query one
	// controller together.
	spreadPart = 4
	// For what a command says that has ended. Wrong, large: the next one comes late.
	lateWords = time.Second
	// Of what a command that fails says, the log has so many bytes.
	mostWords = 1 << 10
)

// soonAfter a job's end its processes are gone, or to be found. Wrong, small: an audit takes those that end for strays.
var soonAfter = 2 * time.Second

// The commands that vgpud runs beside the shares, and when. Wrong, small: a core; large: history is coarse, strays and leftovers stay. Wrong, most: a command
// that hangs goes on, or a slow one is ended.
var allChores = []chore{
	{args: []string{"sample"}, each: 10 * time.Second, most: time.Minute, may: mayRead},
	// NVML can hang in the driver.
	{args: []string{"audit", "--act"}, each: 2 * time.Minute, atRest: emptyEach, most: 5 * time.Minute, afterJobs: true, may: mayRead},
	// A GPU that has failed ends the jobs on it, and would be given to the next ones.
	{args: []string{"health"}, each: 2 * time.Minute, atRest: 5 * time.Minute, most: 2 * time.Minute, afterJobs: true, isNeeded: isSwept, may: mayRead},
	// Jobs' pages are mounts, and their files their users'.
	{args: []string{"sweep"}, each: 5 * time.Minute, atRest: 5 * time.Minute, most: 30 * time.Minute, isNeeded: isSwept,
		may: append(slices.Clone(mayRead), unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_SYS_ADMIN)},
	// It works until nothing waits or report.retry_for is over. Keys of Slurm's that belong to its user are read.
	{args: []string{"records", "--flush"}, each: time.Hour, atRest: time.Hour, isNeeded: hasRecords, may: []int{unix.CAP_DAC_READ_SEARCH}},
}
