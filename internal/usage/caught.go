// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// Caught is what vgpud saw a job do to get around its share, and did about it. All of a job's slices on a node have the same.
type Caught struct {
	Seen   string `json:"seen,omitempty"`   // what a process was seen to do last: a share.Verdict; "": nothing
	Frozen uint32 `json:"frozen,omitempty"` // how often a step was frozen
	Killed uint32 `json:"killed,omitempty"` // how often one was killed
}

// CaughtOf is what a time page says.
func CaughtOf(counted ledger.TimeDevice) Caught {
	c := Caught{Seen: string(share.VerdictOf(counted.Verdict)), Frozen: counted.Frozen, Killed: counted.Killed}
	if c.Seen == "" && counted.Verdict != 0 {
		c.Seen = "does what a later release calls by a name"
	}
	return c
}

// CaughtIn is the same of a job that runs here.
func CaughtIn(dir rundir.Dir, job uint32) (Caught, error) {
	page, err := ledger.ReadTime(dir.Time(job), job)
	if errors.Is(err, ledger.ErrLayout) || len(page) == 0 {
		return Caught{}, err
	}
	return CaughtOf(page[0]), nil
}

// explained says of verdicts what a researcher can do something about.
var explained = map[share.Verdict]string{
	share.SetsItsSlice:    "set for itself how long it stays on the GPU at a time",
	share.RunsWhileOff:    "went on on the GPU while it was others' turn",
	share.WaitsForIdle:    "had others wait for the end of its kernels, and more than its share by it",
	share.HasTooMany:      fmt.Sprintf("had more than %d CUDA contexts on a GPU", ledger.MaxGroups),
	share.MakesWithoutEnd: "made and dropped CUDA contexts without end",
	share.HidesItsHandles: "used the GPU without slurm-vgpu's library",
	share.TakesMore:       "had more than its share while others waited, by work that cannot be held",
}

// Words are for the job's user; "" is nothing.
func (c Caught) Words() string {
	if c == (Caught{}) {
		return ""
	}
	did, known := explained[share.Verdict(c.Seen)]
	if !known {
		did = "did what this release has no words for"
	}
	var answers []string
	if c.Frozen > 0 {
		answers = append(answers, fmt.Sprintf("a step was frozen %s, for %.0f s each time", times(c.Frozen), share.FreezeFor.Seconds()))
	}
	if c.Killed > 0 {
		answers = append(answers, "a step was killed "+times(c.Killed))
	}
	if answers == nil {
		answers = []string{fmt.Sprintf("no step was frozen for as long as %.0f s, or killed", share.FreezeFor.Seconds())} // one may have been for less, until a worker died
	}
	return fmt.Sprintf("a process of the job %s, which gets around its share of the GPU's time: %s; \"Frozen and killed steps\" in slurm-vgpu(7) says more",
		did, strings.Join(answers, ", "))
}

func times(n uint32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
