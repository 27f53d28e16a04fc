// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// PutBackfill notes that a record is to be reported once more, when slurmctld does not know its job any longer.
func PutBackfill(spool rundir.Spool, rec Record) error {
	if err := os.MkdirAll(spool.Backfill(), 0o700); err != nil {
		return fmt.Errorf("note usage record: %w", err)
	}
	rec.Backfill, rec.Outcome = false, ""
	return writeRecord(filepath.Join(spool.Backfill(), rec.FileName()), rec)
}

// ListBackfill returns so many of these records that were noted before that time, the oldest first. No others are read: a user can have many
// such jobs, and each reporter comes by. A file that is no record is removed; one that cannot be read now is left for later.
func ListBackfill(spool rundir.Spool, before time.Time, most int) (records []Record, err error) {
	noted, err := oldestFirst(spool.Backfill())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list usage records: %w", err)
	}
	for _, file := range noted[:min(len(noted), most)] {
		if file.ModTime().After(before) {
			break
		}
		path := filepath.Join(spool.Backfill(), file.Name())
		rec, err := readRecord(path)
		switch {
		case err == nil:
			records = append(records, rec)
		case file.Name()[0] == '.' || errors.Is(err, ErrRecord) || errors.Is(err, trusted.ErrUntrusted):
			if err := os.RemoveAll(path); err != nil {
				return nil, fmt.Errorf("list usage records: %w", err)
			}
		}
	}
	return records, nil
}

// Later puts such a record behind the others.
func Later(spool rundir.Spool, rec Record) error {
	now := time.Now()
	if err := os.Chtimes(filepath.Join(spool.Backfill(), rec.FileName()), now, now); err != nil {
		return fmt.Errorf("leave usage record: %w", err)
	}
	return nil
}

// Return puts such a record into the spool. If it is killed between the two, the record is reported twice, which changes nothing.
func Return(spool rundir.Spool, rec Record) error {
	rec.PutBack = time.Now().UTC().Truncate(time.Second)
	if err := writeRecord(filepath.Join(spool.Usage(), rec.FileName()), rec); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(spool.Backfill(), rec.FileName())); err != nil {
		return fmt.Errorf("report usage record once more: %w", err)
	}
	return nil
}
