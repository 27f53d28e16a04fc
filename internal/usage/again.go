// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// PutAgain notes that a record is to be reported once more, when slurmctld does not know its job any longer.
func PutAgain(spool rundir.Spool, rec Record) error {
	if err := os.MkdirAll(spool.Again(), 0o700); err != nil {
		return fmt.Errorf("note usage record: %w", err)
	}
	rec.Again, rec.Outcome = false, ""
	return writeRecord(filepath.Join(spool.Again(), rec.FileName()), rec)
}

// ListAgain returns so many of these records that were noted before that time, the oldest first. No others are read: a user can have many
// such jobs, and each reporter comes by. What is none goes.
func ListAgain(spool rundir.Spool, before time.Time, most int) (records []Record, err error) {
	entries, err := os.ReadDir(spool.Again())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list usage records: %w", err)
	}
	type noted struct {
		name string
		when time.Time
	}
	var due []noted
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && !info.ModTime().After(before) {
			due = append(due, noted{entry.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(due, func(a, b noted) int { return a.when.Compare(b.when) })
	for _, file := range due[:min(len(due), most)] {
		path := filepath.Join(spool.Again(), file.name)
		if rec, err := readRecord(path); err == nil {
			records = append(records, rec)
		} else if err := os.RemoveAll(path); err != nil {
			return nil, fmt.Errorf("list usage records: %w", err)
		}
	}
	return records, nil
}

// Return puts such a record into the spool.
func Return(spool rundir.Spool, rec Record) error {
	name := rec.FileName()
	if err := os.Rename(filepath.Join(spool.Again(), name), filepath.Join(spool.Usage(), name)); err != nil {
		return fmt.Errorf("report usage record once more: %w", err)
	}
	return nil
}
