// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"time"
)

// Waiting is what the next sweep will take away.
type Waiting struct {
	Slices, Folders, Marks, Temporaries int
	Jobs                                []uint32 // that hold the slices
	Oldest                              time.Time
	Unknown                             int // runs in doubt of which the controller says nothing
}

// Any says that something waits.
func (w Waiting) Any() bool { return w.Slices+w.Folders+w.Marks+w.Temporaries > 0 }

// Count looks and changes nothing. It needs no rights but those to see the run directory and the spool.
func (s Sweeper) Count(ctx context.Context) (Waiting, error) {
	old := s.old
	f, err := s.look(old)
	if err != nil {
		return Waiting{}, err
	}
	w := Waiting{Marks: len(f.marks), Temporaries: len(s.oldTemporaries(old))}
	gone, unknown := s.gone(ctx, f.doubts)
	w.Unknown = unknown
	for _, d := range gone {
		w.Slices += d.slices
		if d.slices > 0 {
			w.Jobs = append(w.Jobs, d.Job)
		}
		if d.folder {
			w.Folders++
		}
	}
	for _, m := range f.marks {
		gone = append(gone, doubt{when: m.when})
	}
	for _, d := range gone {
		if w.Oldest.IsZero() || d.when.Before(w.Oldest) {
			w.Oldest = d.when
		}
	}
	return w, nil
}
