// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pages"
)

// sweepPages removes the pages of jobs that hold nothing, at every commit: what a killed writer left undone is done by the next.
func (tx *Tx) sweepPages() {
	folder, holders := tx.store.Dir.AllPages(), jobsOf(tx.slices)
	entries, err := os.ReadDir(folder)
	if err != nil {
		tx.store.Log.Error("the pages of jobs that are gone may stay", "reason", err)
	}
	for _, entry := range entries {
		job, err := strconv.ParseUint(entry.Name(), 10, 32)
		if _, holds := slices.BinarySearch(holders, uint32(job)); holds || err != nil {
			continue
		}
		if err := pages.Remove(filepath.Join(folder, entry.Name())); err != nil {
			tx.store.Log.Warn("a file of a job that is gone stays", "reason", err)
		}
	}
}

// jobsOf are the jobs that hold something, in order.
func jobsOf(held []Slice) []uint32 {
	jobs := make([]uint32, 0, len(held))
	for i := range held {
		if job := held[i].Job; i == 0 || job != held[i-1].Job {
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	return jobs
}

// clearPages forgets the pages of another boot: no process has them mapped.
func (s Store) clearPages() error {
	entries, err := os.ReadDir(s.Dir.AllPages())
	if err != nil {
		return fmt.Errorf("clear %s: %w", s.Dir.AllPages(), err)
	}
	for _, entry := range entries {
		if err := pages.Remove(filepath.Join(s.Dir.AllPages(), entry.Name())); err != nil {
			return fmt.Errorf("clear %s: %w", s.Dir.AllPages(), err)
		}
	}
	return nil
}
