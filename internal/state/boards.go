// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pages"
)

// postBoards makes the boards say what the state says, and removes the pages of jobs that hold nothing.
// Every one is held against the state at every commit, so that what a killed writer left undone is
// done by the next. A board that cannot be written is no reason to refuse a job: without it the
// slices of that GPU do not take turns, and their limits hold all the same.
func (tx *Tx) postBoards() {
	dir := tx.store.Dir
	boards, holders := boardsOf(tx.slices), sync.OnceValue(func() []uint32 { return jobsOf(tx.slices) })
	entries, err := os.ReadDir(dir.Turns())
	if err != nil {
		tx.store.Log.Error("the boards of the GPUs are not known", "reason", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if gpu := device.UUID(name); isBoard(name) {
			if boards[gpu] == nil {
				boards[gpu] = []ledger.BoardSlice{}
			}
			continue
		}
		// Neither the pages of a job that holds nothing nor what a killed writer left: we have the lock.
		job, err := strconv.ParseUint(name, 10, 32)
		if _, holds := slices.BinarySearch(holders(), uint32(job)); err != nil || !holds {
			tx.removeTurn(name)
		}
	}
	for gpu, onGPU := range boards {
		if err := ledger.WriteBoard(dir.Board(gpu), onGPU); err != nil {
			tx.store.Log.Error("not all slices of a GPU can take turns", "device", gpu, "slices", len(onGPU), "reason", err)
		}
	}
}

func (tx *Tx) removeTurn(name string) {
	if err := pages.Remove(tx.store.Dir.Turn(name)); err != nil {
		tx.store.Log.Warn("a file of a job that is gone stays", "reason", err)
	}
}

// boardsOf sorts the slices by their GPU. A slice's index is its place among those of its job, as
// in the job's grant.
func boardsOf(held []Slice) map[device.UUID][]ledger.BoardSlice {
	var gpus places[device.UUID] // a map would be asked for each slice
	var boards [][]ledger.BoardSlice
	index := uint32(0)
	for i := range held {
		s := &held[i]
		if i > 0 && s.Job == held[i-1].Job && s.Restart == held[i-1].Restart {
			index++
		} else {
			index = 0
		}
		slice := ledger.BoardSlice{Job: s.Job, Device: index, SMPercent: uint32(max(s.SMPercent, 0)), UID: s.UID, Turns: s.Turns}
		if s.Elastic {
			slice.Flags |= ledger.Elastic
		}
		at := gpus.of(s.Device, uint(s.Index))
		if at == len(boards) {
			boards = append(boards, make([]ledger.BoardSlice, 0, min(len(held), ledger.MaxBoardSlices)))
		}
		boards[at] = append(boards[at], slice)
	}
	byGPU := make(map[device.UUID][]ledger.BoardSlice, len(boards))
	for at, board := range boards {
		byGPU[gpus.keys[at]] = board
	}
	return byGPU
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

// Misposted are the GPUs whose boards do not say what the state says. Between a commit and its boards
// that is so for a moment.
func (s Store) Misposted(current State) (gpus []device.UUID) {
	boards := boardsOf(current.Slices)
	entries, _ := os.ReadDir(s.Dir.Turns()) // without it, no board can be read either
	for _, entry := range entries {
		if gpu := device.UUID(entry.Name()); isBoard(entry.Name()) && boards[gpu] == nil {
			boards[gpu] = []ledger.BoardSlice{}
		}
	}
	for gpu, want := range boards {
		got, err := ledger.ReadBoard(s.Dir.Board(gpu))
		if err != nil || !slices.Equal(got, want[:min(len(want), ledger.MaxBoardSlices)]) {
			gpus = append(gpus, gpu)
		}
	}
	slices.Sort(gpus)
	return gpus
}

// isBoard tells a GPU's UUID from a job's number and from what a killed writer left.
func isBoard(name string) bool {
	_, err := strconv.ParseUint(name, 10, 32)
	return err != nil && name[0] != '.'
}

// clearTurns forgets the boards and claims of another boot: no process has them mapped.
func (s Store) clearTurns() error {
	entries, err := os.ReadDir(s.Dir.Turns())
	if err != nil {
		return fmt.Errorf("clear %s: %w", s.Dir.Turns(), err)
	}
	for _, entry := range entries {
		if err := pages.Remove(s.Dir.Turn(entry.Name())); err != nil {
			return fmt.Errorf("clear %s: %w", s.Dir.Turns(), err)
		}
	}
	return nil
}
