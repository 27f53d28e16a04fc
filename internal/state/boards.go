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
	boards, holders := tx.store.boardsOf(tx.slices), sync.OnceValue(func() []uint32 { return jobsOf(tx.slices) })
	entries, err := os.ReadDir(dir.Turns())
	if err != nil {
		tx.store.Log.Error("the boards of the GPUs are not known", "reason", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if gpu := device.UUID(name); isBoard(name) {
			if _, ok := boards[gpu]; !ok {
				boards[gpu] = ledger.Board{}
			}
			continue
		}
		// Neither the pages of a job that holds nothing nor what a killed writer left: we have the lock.
		job, err := strconv.ParseUint(name, 10, 32)
		if _, holds := slices.BinarySearch(holders(), uint32(job)); err != nil || !holds {
			tx.removeTurn(name)
		}
	}
	for gpu, board := range boards {
		if err := ledger.WriteBoard(dir.Board(gpu), board); err != nil {
			tx.store.Log.Error("not all slices of a GPU can take turns", "device", gpu, "slices", len(board.Slices), "reason", err)
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
func (s Store) boardsOf(held []Slice) map[device.UUID]ledger.Board {
	var gpus places[device.UUID] // a map would be asked for each slice
	var boards []ledger.Board
	index, refused := uint32(0), s.Refused()
	for i := range held {
		h := &held[i]
		if i > 0 && h.Job == held[i-1].Job && h.Restart == held[i-1].Restart {
			index++
		} else {
			index = 0
		}
		slice := ledger.BoardSlice{Job: h.Job, Device: index, SMPercent: uint32(max(h.SMPercent, 0)), UID: h.UID, Turns: h.Turns}
		if h.Elastic {
			slice.Flags |= ledger.Elastic
		}
		at := gpus.of(h.Device, uint(h.Index))
		if at == len(boards) {
			boards = append(boards, ledger.Board{KeptBy: s.KeptBy, Slices: make([]ledger.BoardSlice, 0, min(len(held), ledger.MaxBoardSlices))})
		}
		board := &boards[at]
		board.Slices = append(board.Slices, slice)
		// A library of another release writes nothing down for vgpud and goes by its own account.
		if slice.Turns != ledger.VgpudVersion || slices.Contains(refused, h.Device) {
			board.KeptBy = ledger.KeptByLibrary
		}
	}
	byGPU := make(map[device.UUID]ledger.Board, len(boards))
	for at, board := range boards {
		byGPU[gpus.keys[at]] = board
	}
	return byGPU
}

// Boards are what the boards of the GPUs with slices say, or will in a moment: they follow the state file.
func (s Store) Boards(current State) map[device.UUID]ledger.Board { return s.boardsOf(current.Slices) }

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
	boards := s.boardsOf(current.Slices)
	entries, _ := os.ReadDir(s.Dir.Turns()) // without it, no board can be read either
	for _, entry := range entries {
		gpu := device.UUID(entry.Name())
		if _, ok := boards[gpu]; !ok && isBoard(entry.Name()) {
			boards[gpu] = ledger.Board{}
		}
	}
	for gpu, want := range boards {
		got, err := ledger.ReadBoard(s.Dir.Board(gpu))
		if err != nil || got.KeptBy != want.KeptBy || !slices.Equal(got.Slices, want.Slices[:min(len(want.Slices), ledger.MaxBoardSlices)]) {
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
