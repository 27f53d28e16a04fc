// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// anyRun stands for the run of a folder that does not say whose it is: it lives while the job does.
const anyRun = math.MaxInt32

// doubt is a run of a job that has something on this node although nothing here shows that it lives.
type doubt struct {
	state.Run
	slices int       // that it holds in the state file
	folder bool      // jobs/ID
	when   time.Time // when a prolog last had to do with it
}

// mark is a file of which one too few harms nobody: a step that finds neither mark nor grant runs the
// prolog again.
type mark struct {
	path string
	when time.Time
}

// found is what a look at the run directory brings.
type found struct {
	doubts []doubt // oldest first
	marks  []mark
}

// look finds what belongs to no step that runs and was not touched since the grace.
func look(dir rundir.Dir, held []state.Slice, live map[uint32]bool, old func(time.Time) bool) (found, error) {
	var f found
	runs := make(map[state.Run]*doubt)
	add := func(run state.Run, when time.Time) *doubt {
		if runs[run] == nil {
			runs[run] = &doubt{Run: run}
		}
		if when = when.UTC().Round(0); runs[run].when.Before(when) {
			runs[run].when = when
		}
		return runs[run]
	}
	for _, s := range held {
		if !live[s.Job] {
			add(s.Run(), s.Since.Time()).slices++
		}
	}
	entries, err := os.ReadDir(dir.Jobs())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("look for what ended jobs left: %w", err)
	}
	for _, entry := range entries {
		number, suffix, _ := strings.Cut(entry.Name(), ".")
		job, err := strconv.ParseUint(number, 10, 32)
		info, infoErr := entry.Info()
		if err != nil || infoErr != nil || live[uint32(job)] {
			continue
		}
		switch {
		case suffix == "" && entry.IsDir():
			add(runOf(dir, uint32(job)), info.ModTime()).folder = true
		case (suffix == "none" || suffix == "pending") && old(info.ModTime()):
			f.marks = append(f.marks, mark{filepath.Join(dir.Jobs(), entry.Name()), info.ModTime()})
		}
	}
	for _, d := range runs {
		if old(d.when) {
			f.doubts = append(f.doubts, *d)
		}
	}
	slices.SortFunc(f.doubts, func(a, b doubt) int { return cmp.Or(a.when.Compare(b.when), cmp.Compare(a.Job, b.Job)) })
	return f, nil
}

// runOf is the run that a job's folder says it is of.
func runOf(dir rundir.Dir, job uint32) state.Run {
	g, err := grant.Read(dir.Grant(job))
	if err != nil || g.Job != job {
		return state.Run{Job: job, Restart: anyRun}
	}
	return state.Run{Job: job, Restart: g.Restart}
}
