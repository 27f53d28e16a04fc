// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	version = 2
	// maxKept is how many looks a file has at most; a look too many, and each two become one.
	maxKept = 480
	// everyS is how far looks are apart in the beginning, in seconds. It doubles with each folding.
	everyS = 10
	// slackS is how much too early a timer may be.
	slackS = 3
	// maxBytes bounds a file: maxKept looks at 16 slices are some 900 KiB.
	maxBytes = 2 << 20
)

// ErrOther is wrapped when a file is of another run, or of a later release.
var ErrOther = errors.New("not the timeline of this run")

// Sample is what is known of one slice at one time. Times are sums since the slice was granted.
type Sample struct {
	UsedMiB   int64  `json:"mem_mib"`
	BusyMs    *int64 `json:"busy_ms,omitempty"`    // GPU time that vgpud counted; nil: it has not looked at the slice, so far
	UnknownMs int64  `json:"unknown_ms,omitempty"` // time of which nobody counted
	// IdleS is for how many seconds the slice is known to have used no GPU time, LongestIdleS the most that this was.
	IdleS        int64 `json:"idle_s,omitempty"`
	LongestIdleS int64 `json:"longest_idle_s,omitempty"`
}

// busyMs is the GPU time that is known of.
func (s Sample) busyMs() int64 {
	if s.BusyMs == nil {
		return 0
	}
	return *s.BusyMs
}

// Look is what a sampler saw of a job at one time.
type Look struct {
	AtUnixS int64    `json:"t"`
	Slices  []Sample `json:"slices"` // in the order of the grant
}

// Run is a run of a job, whose file it is.
type Run struct {
	Job     uint32
	Restart int
	Slices  int
}

// head is the first line of a file. Each further one is a Look.
type head struct {
	Version int    `json:"version"`
	Job     uint32 `json:"job"`
	Restart int    `json:"restart"`
	Slices  int    `json:"slices"`
	EveryS  int64  `json:"every_s"`
}

func (h head) isOf(run Run) bool {
	return h.Version == version && h.Job == run.Job && h.Restart == run.Restart && h.Slices == run.Slices && h.EveryS >= everyS
}

// History is the content of a file.
type History struct {
	looks []Look
}

// Read reads what is whole of a file. There is none: fs.ErrNotExist.
func Read(path string, run Run) (History, error) {
	var h History
	err := trusted.Look(path, maxBytes, func(data []byte) error {
		lines, err := linesOf(data, path, run)
		for line := range bytes.Lines(lines.text) {
			if look, ok := parseLook(line, run.Slices); ok {
				h.looks = append(h.looks, look)
			}
		}
		return err
	})
	return h, err
}

// lines are the looks of a file, as text: complete lines without the first.
type lines struct {
	head  head
	text  []byte
	begin int64 // where in the file they begin
}

func linesOf(data []byte, path string, run Run) (lines, error) {
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	var h head
	if err := json.Unmarshal(first, &h); err != nil {
		return lines{}, fmt.Errorf("read timeline %s: %w: %w", path, ErrOther, err)
	}
	if !h.isOf(run) {
		return lines{}, fmt.Errorf("read timeline %s: %w: it is of job %d restart %d with %d slices, version %d",
			path, ErrOther, h.Job, h.Restart, h.Slices, h.Version)
	}
	whole := bytes.LastIndexByte(rest, '\n') + 1 // what a writer that died has left behind is no line
	return lines{h, rest[:whole], int64(len(first) + 1)}, nil
}

func parseLook(line []byte, slices int) (look Look, ok bool) {
	err := json.Unmarshal(line, &look)
	return look, err == nil && len(look.Slices) == slices
}

// Last is the newest sample of a slice.
func (h History) Last(slice int) (Sample, bool) {
	if len(h.looks) == 0 {
		return Sample{}, false
	}
	return h.looks[len(h.looks)-1].Slices[slice], true
}

// End adds the last figures when a run ends. It adds nothing to a history without a look before.
func (h History) End(look Look) History {
	n := len(h.looks)
	if n == 0 || len(look.Slices) != len(h.looks[0].Slices) {
		return h
	}
	if last := h.looks[n-1]; look.AtUnixS <= last.AtUnixS { // in the same second
		look.AtUnixS = last.AtUnixS
		return History{append(h.looks[:n-1:n-1], merge(last, look))}
	}
	return History{append(h.looks[:len(h.looks):len(h.looks)], look)}
}

// soonS is when a run that has begun has been looked at, in seconds; a later one was missed.
const soonS = 2 * everyS

// Short is the history of a run that ended before anybody was due to look at it: one interval, with what it used at most. look is the end's, with
// that for its memory.
func (h History) Short(look Look, startUnixS int64) History {
	if len(h.looks) > 0 || look.AtUnixS-startUnixS > soonS {
		return h
	}
	return History{[]Look{look}}
}

// Points are those of a slice, at most so many; more are folded, each two into one.
func (h History) Points(slice, most int) []Point {
	looks := h.looks
	for len(looks) > most {
		looks = fold(looks)
	}
	points := make([]Point, 0, len(looks))
	var before Sample
	for _, look := range looks {
		now := look.Slices[slice]
		points = append(points, Point{AtUnixS: look.AtUnixS, UsedMiB: now.UsedMiB, BusyMs: max(0, now.busyMs()-before.busyMs())})
		before = now
	}
	return points
}

// fold makes one look of each two; of sums that is the later one.
func fold(looks []Look) []Look {
	folded := make([]Look, 0, (len(looks)+1)/2)
	for i := 0; i < len(looks); i += 2 {
		if i+1 == len(looks) {
			folded = append(folded, looks[i])
			break
		}
		folded = append(folded, merge(looks[i], looks[i+1]))
	}
	return folded
}

func merge(earlier, later Look) Look {
	both := Look{later.AtUnixS, append([]Sample(nil), later.Slices...)}
	for i := range both.Slices {
		both.Slices[i].UsedMiB = max(both.Slices[i].UsedMiB, earlier.Slices[i].UsedMiB)
	}
	return both
}

// isNone says that there is nothing to go on from.
func isNone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrOther) }
