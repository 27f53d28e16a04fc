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
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// MaxHistory is how many reported records are kept.
const MaxHistory = 1000

// Keep writes a record into the history before it leaves the spool: killed in between, it is
// reported once more, and finds its part standing.
func Keep(spool rundir.Spool, rec Record) error {
	if err := os.MkdirAll(spool.History(), 0o700); err != nil {
		return fmt.Errorf("keep usage record: %w", err)
	}
	name := rec.FileName()
	if err := writeRecord(filepath.Join(spool.History(), name), rec); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(spool.Usage(), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep usage record: %w", err)
	}
	return nil
}

// Trim keeps the newest MaxHistory files of the history.
func Trim(spool rundir.Spool) error {
	files, err := oldestFirst(spool.History())
	if err != nil {
		return fmt.Errorf("trim usage history: %w", err)
	}
	for _, file := range files[:max(len(files)-MaxHistory, 0)] {
		if err := os.RemoveAll(filepath.Join(spool.History(), file.Name())); err != nil {
			return fmt.Errorf("trim usage history: %w", err)
		}
	}
	return nil
}

// oldestFirst are the files of a folder, by when they were changed.
func oldestFirst(folder string) (files []fs.FileInfo, err error) {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return files, err
}

// RemoveTemporaries clears what killed reporters left in the history: the one that has the lock is the only one.
// Other writers there need milliseconds.
func RemoveTemporaries(spool rundir.Spool) {
	names, _ := filepath.Glob(filepath.Join(spool.History(), ".*.json*"))
	for _, path := range names {
		if info, err := os.Lstat(path); err == nil && trusted.Age(info.ModTime()) > time.Minute {
			os.Remove(path)
		}
	}
}

// SetAside moves what is no record out of the way, for an admin to look at.
func SetAside(spool rundir.Spool, name string) (to string, err error) {
	if err := os.MkdirAll(spool.History(), 0o700); err != nil {
		return "", fmt.Errorf("set usage record aside: %w", err)
	}
	to = filepath.Join(spool.History(), name+".bad")
	if err := os.Rename(filepath.Join(spool.Usage(), name), to); err != nil {
		return "", fmt.Errorf("set usage record aside: %w", err)
	}
	return to, nil
}
