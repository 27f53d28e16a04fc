// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package state keeps the node's state file: which job holds which slice.
//
// Writers hold the lock file and replace the state file in one step; readers take no lock.
// Whatever happens to the file, slices of running jobs come back from their grants.
package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Slice is a slice that a job holds on this node.
type Slice struct {
	Job     uint32
	UID     uint32
	Elastic bool   // --vgpu-policy=elastic
	Restart int    // which run of the job, counted from 0
	Since   Millis // when it was granted
	Ends    int64  // when the job's time limit was over as the slice was granted, in seconds since 1970; 0: not known
	device.Slice
}

// Millis is a time in milliseconds since 1970; 0: not known.
type Millis int64

// MillisOf is a time to the millisecond.
func MillisOf(t time.Time) Millis {
	if t.IsZero() {
		return 0
	}
	return Millis(t.UnixMilli())
}

// Time is zero where it is not known.
func (m Millis) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

// State is what the state file says.
type State struct {
	BootID string
	Slices []Slice // in the order in which they were granted, those of a run one after another
}

// Store is the state of one run directory.
type Store struct {
	Dir    rundir.Dir
	BootID string // of this boot; slices of another one are void
	Log    hclog.Logger
	JobMap string // folder of a file for each GPU with the jobs on it; "": none
}

// Of is the node's store, as every program has it.
func Of(cfg config.Config, bootID string, log hclog.Logger) Store {
	return Store{Dir: cfg.Run(), BootID: bootID, Log: log, JobMap: cfg.DCGMJobMap}
}

// Read returns the state without a lock and without repairing it. A missing file is an empty state.
func (s Store) Read() (State, error) {
	state, _, err := read(s.Dir.State())
	if errors.Is(err, fs.ErrNotExist) {
		return State{BootID: s.BootID}, nil
	}
	if err == nil && state.BootID != s.BootID {
		state = State{BootID: s.BootID}
	}
	return state, err
}

// Tx is the locked state. Nothing is changed on disk before Commit.
type Tx struct {
	store  Store
	held   *os.File
	slices []Slice
	gpus   []gpu // that the state file knows
	dirty  bool
}

// Begin makes the run directory if need be, takes the lock, and reads the state. A damaged state
// file is moved aside and made again from the grants that are there; slices of another boot are
// dropped. The context bounds only the wait for the lock.
func (s Store) Begin(ctx context.Context) (*Tx, error) {
	if err := s.Prepare(); err != nil {
		return nil, err
	}
	held, err := trusted.Lock(ctx, s.Dir.Lock())
	if err != nil {
		return nil, err
	}
	tx := &Tx{store: s, held: held}
	if err := tx.load(); err != nil {
		tx.End()
		return nil, err
	}
	return tx, nil
}

// End gives the lock back. Changes that were not committed are forgotten.
func (tx *Tx) End() { tx.held.Close() }

// Held is what stands on the GPUs, as those see it who queue for them.
func (tx *Tx) Held() []place.Held {
	held := make([]place.Held, 0, len(tx.slices))
	for _, s := range tx.slices {
		held = append(held, place.Held{Slice: s.Slice, Job: s.Job, Ends: s.Ends})
	}
	return held
}

// Slices are those of the whole node, until something is changed. The caller must not change them.
func (tx *Tx) Slices() []Slice { return tx.slices }

// Put makes a job hold these slices and no others.
func (tx *Tx) Put(job uint32, slices []Slice) {
	tx.Drop(func(run Run) bool { return run.Job == job })
	tx.slices = append(tx.slices, slices...)
	tx.dirty = true
}

// Drop forgets the slices of some runs, and returns them.
func (tx *Tx) Drop(which func(Run) bool) (dropped []Slice) {
	kept := tx.slices[:0]
	for _, s := range tx.slices {
		if which(s.Run()) {
			dropped = append(dropped, s)
		} else {
			kept = append(kept, s)
		}
	}
	tx.slices, tx.dirty = kept, tx.dirty || len(dropped) > 0
	return dropped
}

// Change lets change rewrite every slice where it stands.
func (tx *Tx) Change(change func(*Slice)) {
	for i := range tx.slices {
		before := tx.slices[i]
		change(&tx.slices[i])
		tx.dirty = tx.dirty || tx.slices[i] != before
	}
}

// Commit writes the state file if anything changed. Pages and job map follow it.
func (tx *Tx) Commit() error {
	if tx.dirty {
		tx.gpus = gpusOf(tx.gpus, tx.slices)
		if err := write(tx.store.Dir.State(), State{BootID: tx.store.BootID, Slices: tx.slices}, tx.gpus); err != nil {
			return err
		}
		tx.dirty = false
	}
	tx.sweepPages()
	tx.postJobMap()
	return nil
}

func (tx *Tx) load() error {
	path := tx.store.Dir.State()
	sweepTemporaries(path)
	found, gpus, err := read(path)
	switch {
	case err == nil && found.BootID == tx.store.BootID:
		tx.slices, tx.gpus = found.Slices, gpus
		return nil
	case err == nil:
		tx.store.Log.Warn("the node was rebooted, its slices are free", "slices", len(found.Slices))
		tx.dirty = true
		return errors.Join(tx.store.clearJobs(), tx.store.clearPages())
	case errors.Is(err, fs.ErrNotExist):
		// Nothing was granted since boot; or somebody removed the file, and jobs run.
		return tx.rebuild()
	case !errors.Is(err, ErrCorrupt):
		return err
	}
	aside, moveErr := moveAside(path, time.Now())
	if moveErr != nil {
		return errors.Join(err, moveErr)
	}
	tx.store.Log.Error("the state file was moved aside and is made again from the jobs' grants", "reason", err, "moved_to", aside)
	return tx.rebuild()
}

// rebuild takes the slices from the grants of this boot. Those of jobs that are gone are among
// them until they are reconciled.
func (tx *Tx) rebuild() error {
	jobs := tx.store.Dir.Jobs()
	entries, err := os.ReadDir(jobs)
	if err != nil {
		return fmt.Errorf("rebuild state from %s: %w", jobs, err)
	}
	for _, entry := range entries {
		job, err := strconv.ParseUint(entry.Name(), 10, 32)
		if err != nil {
			continue
		}
		g, err := grant.Read(tx.store.Dir.Grant(uint32(job)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			tx.store.Log.Error("a grant cannot be used, its job loses its slices", "job", job, "reason", err)
			continue
		}
		if g.BootID != tx.store.BootID || g.Job != uint32(job) {
			continue
		}
		tx.slices = append(tx.slices, OfGrant(g)...)
		tx.dirty = tx.dirty || len(g.Slices) > 0
	}
	return nil
}

// CountedOtherwise is a job that holds a slice of which Slurm picked the GPU where it does not any more, or the other way round; 0: there is none. All of a
// node were counted in one way, as the prolog sees to it: the first job that is known says it for all. own is not looked at.
func (s Store) CountedOtherwise(held []Slice, own uint32, bySlurm bool) (job uint32) {
	for _, slice := range held {
		if slice.Job == own {
			continue
		}
		g, err := grant.Read(s.Dir.Grant(slice.Job))
		if err != nil || g.Restart != slice.Restart {
			continue
		}
		if picked, known := g.PickedBy(); known {
			if picked != bySlurm {
				return slice.Job
			}
			return 0
		}
	}
	return 0
}

// OfGrant are the slices that a grant says its job holds.
func OfGrant(g grant.Grant) (held []Slice) {
	for _, slice := range g.Slices {
		held = append(held, Slice{Job: g.Job, Restart: g.Restart, UID: g.UID, Since: MillisOf(g.Since),
			Elastic: g.Policy == request.PolicyElastic, Ends: g.Ends, Slice: slice})
	}
	return held
}

// Prepare makes the run directory and sees to it that only root can change what is in it.
func (s Store) Prepare() error {
	for _, dir := range []string{string(s.Dir), s.Dir.Jobs(), s.Dir.AllPages()} {
		if err := makeDir(dir); err != nil {
			return fmt.Errorf("the run directory cannot be used: %w", err)
		}
	}
	return nil
}

func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		return os.Chmod(dir, 0o755) // slurmd's umask must not shut users out
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return trusted.Folder(dir)
}

// clearJobs removes the folders of all jobs: after a reboot none of them runs.
func (s Store) clearJobs() error {
	entries, err := os.ReadDir(s.Dir.Jobs())
	if err != nil {
		return fmt.Errorf("clear %s: %w", s.Dir.Jobs(), err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(s.Dir.Jobs(), entry.Name())); err != nil {
			return fmt.Errorf("clear %s: %w", s.Dir.Jobs(), err)
		}
	}
	return nil
}
