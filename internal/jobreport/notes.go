// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package jobreport

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Where a note begins to be worth reading.
const (
	worthSaving     = 0.8              // of what was granted: a recommendation above that saves too little
	closeToLimit    = 0.95             // a peak above that part of the limit is near it
	atCapNoteworthy = 20.0             // percent of the time
	capReached      = 0.9              // a share above that part of the cap: it was the cap that held back
	capHardlyUsed   = 0.8              // a highest share below that part of the cap
	tooShortToJudge = 10 * time.Minute // of a run: how much of the time was used says nothing yet
	idleNoteworthy  = 10 * time.Minute
	idlePart        = 0.1         // of the run: a pause that is shorter is no news
	unknownMuch     = time.Minute // of which nobody counted: a time line may show it as a pause
	noteworthyAfter = time.Minute // of a run: a shorter one says little
)

// facts are what the rules go by.
type facts struct {
	Run
	wall      time.Duration
	now       time.Time // or the end of the run
	loc       *time.Location
	used      []Slice // slices that have seen any use
	peakMiB   int64   // the largest of all slices: --vgpu-mem is per slice
	grantMiB  int64   // the smallest
	refusals  uint64
	capped    bool // all slices have a share to keep
	timed     bool // the time of all is known
	changed   bool // an administrator has changed a limit: what follows from figures is not what to ask for
	mostShare float64
	allKnown  bool // the time line of each slice is there, and tells all
}

// rules say something, or "" where there is nothing to say.
var rules = []struct {
	name string
	say  func(facts) string
}{
	{"refused", refusedRun},
	{"caught", caughtRun},
	{"changed", changedLimits},
	{"unused", unusedSlices},
	{"memory-refused", memoryRefused},
	{"memory-spare", memorySpare},
	{"memory-close", memoryClose},
	{"at-cap", atCap},
	{"cap-spare", capSpare},
	{"late", lateStart},
	{"idle", idleAtTheEnd},
}

func notes(run Run, now time.Time, loc *time.Location) []Note {
	f := factsOf(run, now, loc)
	found := []Note{}
	for _, rule := range rules {
		if text := rule.say(f); text != "" {
			found = append(found, Note{rule.name, text})
		}
	}
	return found
}

func factsOf(run Run, now time.Time, loc *time.Location) facts {
	f := facts{Run: run, wall: run.Wall(now), now: run.end(now), loc: loc, capped: len(run.Slices) > 0}
	f.timed, f.allKnown = f.capped, f.capped
	for i, s := range run.Slices {
		if s.Whole {
			return facts{Run: run} // nothing is counted of whole GPUs
		}
		if s.Peak() > 0 || s.Used() || s.Refused() > 0 {
			f.used = append(f.used, s)
		}
		f.peakMiB = max(f.peakMiB, s.Peak())
		f.refusals += s.Refused()
		f.changed = f.changed || s.changed()
		if asked := s.all()[0].MemMiB; i == 0 || asked < f.grantMiB {
			f.grantMiB = asked
		}
		f.capped = f.capped && s.Capped()
		f.timed = f.timed && s.GPUSeconds != nil
		f.allKnown = f.allKnown && len(s.cells) > 0 && seconds(s.UnknownSeconds) < unknownMuch
		if s.MostSharePercent != nil {
			f.mostShare = max(f.mostShare, *s.MostSharePercent)
		}
	}
	return f
}

// so is said where it may still change.
func (f facts) so() string {
	if f.Running() {
		return "so far "
	}
	return ""
}

func refusedRun(f facts) string {
	var words []string
	for node, why := range f.Refusals {
		words = append(words, fmt.Sprintf("%s gave it no slice: %s", node, why))
	}
	slices.Sort(words)
	return strings.Join(words, "; ")
}

// caughtRun says on which nodes the job was seen to get around its share.
func caughtRun(f facts) string {
	var words []string
	nodes := f.Nodes()
	for _, s := range f.Slices {
		text := s.Caught.Words()
		if text != "" && len(nodes) > 1 {
			text = s.Node + ": " + text
		}
		if text != "" && !slices.Contains(words, text) {
			words = append(words, text)
		}
	}
	return strings.Join(words, "; ")
}

func unusedSlices(f facts) string {
	all := len(f.Slices)
	if f.wall < noteworthyAfter || all == 0 || len(f.used) == all {
		return ""
	}
	if len(f.used) > 0 {
		return fmt.Sprintf("%s%d of %d slices never used: if the program uses one GPU only, ask for fewer (--gres=vgpu:N)", f.so(), all-len(f.used), all)
	}
	return f.so() + "no GPU memory and no GPU time used: does the program find the GPU? (nvidia-smi, torch.cuda.is_available())"
}

func memoryRefused(f facts) string {
	if f.refusals == 0 {
		return ""
	}
	times := fmt.Sprintf("%d allocations were", f.refusals)
	if f.refusals == 1 {
		times = "1 allocation was"
	}
	if f.changed {
		return times + " refused at a limit that was changed while the job ran"
	}
	if f.grantMiB <= 0 {
		return times + " refused at the limit"
	}
	return fmt.Sprintf("%s refused at the limit of %s: ask for more than --vgpu-mem=%d if the program failed by it, or make its batches smaller",
		times, memory(f.grantMiB), f.grantMiB)
}

func memorySpare(f facts) string {
	advice, ok := adviseMiB(f.peakMiB, f.grantMiB)
	if !ok || f.refusals > 0 || f.wall < noteworthyAfter {
		return ""
	}
	return fmt.Sprintf("%speak %s: ask for --vgpu-mem=%s", f.so(), ofMemory(f.peakMiB, f.grantMiB), request.Mem{MiB: advice}.Typed())
}

// adviseMiB is the peak and a tenth of it, rounded up to what one would type.
func adviseMiB(peak, granted int64) (mib int64, ok bool) {
	if peak <= 0 {
		return 0, false
	}
	step := int64(100)
	switch {
	case peak >= 16000:
		step = 1000
	case peak >= 1000:
		step = 500
	}
	need := (peak*11 + 9) / 10
	mib = (need + step - 1) / step * step
	return mib, float64(mib) < worthSaving*float64(granted)
}

func memoryClose(f facts) string {
	if f.refusals > 0 || f.peakMiB == 0 || f.changed || float64(f.peakMiB) < closeToLimit*float64(f.grantMiB) {
		return ""
	}
	return fmt.Sprintf("%speak %s: little is left before allocations are refused", f.so(), ofMemory(f.peakMiB, f.grantMiB))
}

// atCap is about a slice whose share cannot be more. The run must be long enough: times of points are known to the second.
func atCap(f facts) string {
	if f.wall < noteworthyAfter || f.Policy == string(request.PolicyElastic) {
		return ""
	}
	var most float64 // percent of the time
	var of Slice
	for _, s := range f.Slices {
		var reached time.Duration
		for _, cell := range s.cells {
			if s.Capped() && 100*cell.Busy >= capReached*float64(s.leastPercent()) {
				reached += cell.To.Sub(cell.From)
			}
		}
		if part := 100 * float64(reached) / float64(f.wall); part > most {
			most, of = part, s
		}
	}
	switch most = min(most, 100); {
	case most < atCapNoteworthy:
		return ""
	case f.changed:
		return fmt.Sprintf("%sat its cap for %.0f %% of the time, which was changed while the job ran", f.so(), most)
	}
	return fmt.Sprintf("%sat its cap for %.0f %% of the time: with more than --vgpu-cores=%d it may be faster; --vgpu-policy=elastic takes what no other slice wants",
		f.so(), most, of.SMPercent)
}

func capSpare(f facts) string {
	if !f.capped || f.changed || !f.allKnown || f.mostShare <= 0 || f.wall < tooShortToJudge {
		return ""
	}
	least := slices.MinFunc(f.Slices, func(a, b Slice) int { return a.SMPercent - b.SMPercent }).SMPercent
	if f.mostShare >= capHardlyUsed*float64(least) {
		return ""
	}
	advice := (int(f.mostShare*1.1) + 5) / 5 * 5
	if float64(advice) >= worthSaving*float64(least) {
		return ""
	}
	return fmt.Sprintf("%sat most %.0f %% of the GPU's time in use, %d %% were granted: ask for --vgpu-cores=%d", f.so(), f.mostShare, least, advice)
}

// work is the time of the first and of the last use of the GPU by any slice.
func (f facts) work() (first, last time.Time, ok bool) {
	if !f.timed || !f.allKnown {
		return first, last, false
	}
	for _, s := range f.Slices {
		for _, cell := range s.cells {
			if cell.Busy == 0 {
				continue
			}
			if first.IsZero() || cell.From.Before(first) {
				first = cell.From
			}
			if cell.To.After(last) {
				last = cell.To
			}
		}
	}
	return first, last, !last.IsZero()
}

func (f facts) isLong(pause time.Duration) bool {
	return pause >= idleNoteworthy && float64(pause) >= idlePart*float64(f.wall)
}

func lateStart(f facts) string {
	first, _, ok := f.work()
	if !ok || !f.isLong(first.Sub(f.Start)) {
		return ""
	}
	return fmt.Sprintf("the first work on the GPU came %s after the start, at %s: the time before it needs no slice", Length(first.Sub(f.Start)), clock(first, f.now, f.loc))
}

func idleAtTheEnd(f facts) string {
	_, last, ok := f.work()
	if !ok || !f.isLong(f.now.Sub(last)) {
		return ""
	}
	if f.Running() {
		return fmt.Sprintf("idle since %s, for %s: if it is done, scancel gives the slice to others", clock(last, f.now, f.loc), Length(f.now.Sub(last)))
	}
	return fmt.Sprintf("idle from %s to the end, for %s: let the job end when its work is done", clock(last, f.now, f.loc), Length(f.now.Sub(last)))
}
