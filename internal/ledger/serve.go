// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// What may be done with the pages of a job by way of its own build.
const (
	OpWriteLimits  = "write-limits"
	OpChangeLimits = "change-limits"
	OpReadLimits   = "read-limits"
	OpReadUsage    = "read-usage"
	OpReadSlots    = "read-slots"
)

// Ask is what a program of another build has vgpu-layout do. Builds that do not know each other speak it: nothing of it,
// nor of what stands in it, is ever renamed or taken away, and what is added may be missing.
type Ask struct {
	Op      string
	Path    string
	Limits  *Limits `json:",omitempty"` // to be written
	Job     uint32  `json:",omitempty"` // whose ledger it is to be
	Devices int     `json:",omitempty"` // of slots
	Bounds  Bounds  // of usage
}

// Answer is what it says.
type Answer struct {
	Error   string  `json:",omitempty"`
	Kind    string  `json:",omitempty"` // of the error: "layout" is ErrLayout, "missing" fs.ErrNotExist
	Limits  *Limits `json:",omitempty"`
	Usage   *Usage  `json:",omitempty"`
	Slots   []Slot  `json:",omitempty"`
	Version uint32  // LayoutVersion of who answers
}

const (
	kindLayout  = "layout"
	kindMissing = "missing"
	maxAskBytes = 1 << 20
)

// Serve answers one question.
func Serve(from io.Reader, to io.Writer) error {
	var ask Ask
	if err := json.NewDecoder(io.LimitReader(from, maxAskBytes)).Decode(&ask); err != nil {
		return fmt.Errorf("read the question: %w", err)
	}
	answer, err := ask.do()
	answer.Version = LayoutVersion
	if err != nil {
		answer.Error = err.Error()
		switch {
		case errors.Is(err, ErrLayout):
			answer.Kind = kindLayout
		case errors.Is(err, fs.ErrNotExist):
			answer.Kind = kindMissing
		}
	}
	return json.NewEncoder(to).Encode(answer)
}

func (ask Ask) do() (answer Answer, err error) {
	var limits Limits
	if ask.Limits != nil {
		limits = *ask.Limits
	}
	switch ask.Op {
	case "": // for the version alone
	case OpWriteLimits:
		return answer, WriteLimits(ask.Path, limits)
	case OpChangeLimits:
		return answer, ChangeLimits(ask.Path, limits)
	case OpReadLimits:
		limits, err = ReadLimits(ask.Path)
		answer.Limits = &limits
	case OpReadUsage:
		var usage Usage
		usage, err = Read(ask.Path, ask.Job, ask.Bounds)
		answer.Usage = &usage
	case OpReadSlots:
		answer.Slots, err = ReadSlots(ask.Path, ask.Job, ask.Devices)
	default:
		err = fmt.Errorf("%q is nothing that this build does", ask.Op)
	}
	return answer, err
}

// Err is the error as who asked would have had it.
func (a Answer) Err() error {
	switch {
	case a.Error == "":
		return nil
	case a.Kind == kindLayout:
		return fmt.Errorf("%w: %s", ErrLayout, a.Error)
	case a.Kind == kindMissing:
		return fmt.Errorf("%w: %s", fs.ErrNotExist, a.Error)
	}
	return errors.New(a.Error)
}
