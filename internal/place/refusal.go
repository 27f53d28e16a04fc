// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Kind tells callers whether waiting helps.
type Kind string

const (
	Fragmented  Kind = "fragmentation" // it fits when other slices are gone
	Unavailable Kind = "unavailable"   // it fits when lost or draining GPUs are back
	Never       Kind = "never"         // it fits no state of this node
)

// Refusal says why nothing was placed. Reason is one sentence for the job's owner.
type Refusal struct {
	Kind    Kind
	Reason  string
	FitsMiB int64 // the most memory of each slice with which it would fit now; 0: with none
}

func refuse(inv device.Inventory, loads []load, fits int, want Want, rules Rules) *Refusal {
	switch {
	case want.Slices <= 0:
		return &Refusal{Kind: Never, Reason: "no slice was asked for"}
	case want.SMPercent < 0 || want.SMPercent > 100:
		return &Refusal{Kind: Never, Reason: fmt.Sprintf("%d %% of a GPU's time was asked for: 100 %% is all there is", want.SMPercent)}
	case !want.valid():
		return &Refusal{Kind: Never, Reason: "the job holds no gpumem on this node, so a slice would have no memory"}
	case len(loads) == 0:
		return &Refusal{Kind: Unavailable, Reason: "this node has no GPU"}
	case want.Slices > len(loads):
		return &Refusal{Kind: Never, Reason: fmt.Sprintf("%d slices need %d different GPUs: this node has %d", want.Slices, want.Slices, len(loads))}
	}
	return &Refusal{kindOf(inv, want, rules), reason(loads, fits, want, rules), fitsNow(loads, want, rules)}
}

// fitsNow is what the slices could have each, where memory alone is in the way.
func fitsNow(loads []load, want Want, rules Rules) int64 {
	var most []int64
	for _, l := range loads {
		l.askMiB = 1
		if l.obstacle(want, rules) == none {
			most = append(most, min(l.freeMiB, l.gpu.MemMiB))
		}
	}
	if len(most) < want.Slices {
		return 0
	}
	slices.Sort(most)
	return most[len(most)-want.Slices]
}

// kindOf tries the same want on an empty node, then on one whose GPUs are all in service.
func kindOf(inv device.Inventory, want Want, rules Rules) Kind {
	rules.Reserved = nil
	if countFits(inv, want, rules) >= want.Slices {
		return Fragmented
	}
	rules.Drain = nil
	inv.GPUs = slices.Clone(inv.GPUs)
	for i := range inv.GPUs {
		inv.GPUs[i].Lost = ""
	}
	if countFits(inv, want, rules) >= want.Slices {
		return Unavailable
	}
	return Never
}

func countFits(emptyNode device.Inventory, want Want, rules Rules) (fits int) {
	for _, l := range weigh(emptyNode, nil, want, rules) {
		if l.obstacle(want, rules) == none {
			fits++
		}
	}
	return fits
}

func reason(loads []load, fits int, want Want, rules Rules) string {
	var misfits []load
	same := true // the same obstacle everywhere
	for _, l := range loads {
		if o := l.obstacle(want, rules); o != none {
			misfits = append(misfits, l)
			same = same && o == misfits[0].obstacle(want, rules)
		}
	}
	if fits == 0 && same {
		if text := everywhere(misfits, want, rules); text != "" {
			return text
		}
	}
	head := "no GPU fits " + want.size()
	if want.Slices > 1 {
		head = fmt.Sprintf("%d different GPUs that fit %s each are needed, and %d of %d would", want.Slices, want.size(), fits, len(loads))
	}
	const listed = 8
	var each []string
	for i, l := range misfits {
		if i == listed {
			each = append(each, fmt.Sprintf("and %d more", len(misfits)-listed))
			break
		}
		each = append(each, fmt.Sprintf("GPU %d %s", l.gpu.Index, l.why(want, rules)))
	}
	return head + ": " + strings.Join(each, ", ")
}

// size is the want in words: "3000 MiB and 30 % of its time".
func (w Want) size() string {
	text := fmt.Sprintf("%d MiB", w.Mem.MiB)
	if w.Mem.Percent > 0 {
		text = fmt.Sprintf("%s of its memory", strings.Replace(w.Mem.String(), "%", " %", 1))
	}
	if w.SMPercent > 0 {
		text += fmt.Sprintf(" and %d %% of its time", w.SMPercent)
	}
	return text
}

// everywhere is the sentence for one obstacle on all GPUs: it names the largest that would fit.
// "" leaves it to the list of GPUs.
func everywhere(loads []load, want Want, rules Rules) string {
	best := func(of func(load) int64) (load, int64) {
		top := slices.MaxFunc(loads, func(a, b load) int { return int(of(a) - of(b)) })
		return top, of(top)
	}
	switch loads[0].obstacle(want, rules) {
	case tooSmall:
		l, mib := best(func(l load) int64 { return min(l.gpu.MemMiB, l.freeMiB+l.memMiB) })
		return fmt.Sprintf("no GPU has %d MiB: the most is %d MiB on GPU %d", l.askMiB, mib, l.gpu.Index)
	case noMem:
		l, mib := best(func(l load) int64 { return l.freeMiB })
		return fmt.Sprintf("no GPU has %d MiB free: the most is %d MiB on GPU %d", l.askMiB, max(mib, 0), l.gpu.Index)
	case noTime:
		l, percent := best(func(l load) int64 { return int64(100 - l.sm) })
		return fmt.Sprintf("no GPU has %d %% of its time free: the most is %d %% on GPU %d", want.SMPercent, max(percent, 0), l.gpu.Index)
	case full:
		return fmt.Sprintf("every GPU holds as many slices as this node allows: %d", rules.SlicesPerGPU)
	case notType:
		return fmt.Sprintf("no GPU is admitted by --vgpu-gpu=%s: this node has %s", want.GPU, names(loads))
	case notUUID:
		return fmt.Sprintf("no GPU of this node is admitted by --vgpu-uuid=%s", want.UUID)
	case latencyTaken:
		return fmt.Sprintf("every GPU holds as many slices of --vgpu-priority=latency as this node allows: %d", rules.LatencyPerGPU)
	case none, lost, draining, notPicked, alone, notEmpty, kept:
	}
	return ""
}

// why is the obstacle on one GPU, to be read after its name.
func (l load) why(want Want, rules Rules) string {
	switch l.obstacle(want, rules) {
	case lost:
		return "is out of service (" + l.gpu.Lost + ")"
	case draining:
		return "is draining"
	case notPicked:
		return "is not the one that Slurm picked"
	case notType:
		return fmt.Sprintf("is of type %s, not admitted by --vgpu-gpu=%s", l.gpu.Type, want.GPU)
	case notUUID:
		return fmt.Sprintf("is not admitted by --vgpu-uuid=%s", want.UUID)
	case tooSmall:
		return fmt.Sprintf("has %d MiB in all", min(l.gpu.MemMiB, l.freeMiB+l.memMiB))
	case alone:
		return "is held alone by a slice of 100 %"
	case notEmpty:
		return fmt.Sprintf("holds %s, and 100 %% needs an empty one", plural(l.slices, "slice"))
	case full:
		return fmt.Sprintf("holds %s, the most that this node allows", plural(l.slices, "slice"))
	case latencyTaken:
		return l.fullOfLatency()
	case noMem:
		if want.Mem.Percent > 0 {
			return fmt.Sprintf("has %d of %d MiB free", max(l.freeMiB, 0), l.askMiB)
		}
		return fmt.Sprintf("has %d MiB free", max(l.freeMiB, 0))
	case noTime:
		return fmt.Sprintf("has %d %% of its time free", max(100-l.sm, 0))
	case kept:
		return fmt.Sprintf("is kept for job %d, which has waited longer", l.keptFor)
	case none:
	}
	return "fits"
}

func (l load) fullOfLatency() string {
	return fmt.Sprintf("holds %s of --vgpu-priority=latency, the most that this node allows", plural(l.latency, "slice"))
}

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func names(loads []load) string {
	var types []string
	for _, l := range loads {
		if !slices.Contains(types, l.gpu.Type) {
			types = append(types, l.gpu.Type)
		}
	}
	return strings.Join(types, ", ")
}
