// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package launch turns a job's grant into what the tasks of one step get: environment, folder and
// mounts. It is the Go side of the SPANK plugin without the cgo, and must stay light: slurmstepd
// and every srun load it.
package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// Step is a step about to start on this node.
type Step struct {
	RunDir       rundir.Dir
	Job          uint32
	Step         uint32 // as in slurm.h
	UID, GID     uint32
	Options      request.Texts // as typed, or forged; nothing is believed about them
	WholeJob     bool          // the step has what its job has, whatever the options say
	GRES         StepGRES
	GPUs         string // that Slurm gave to the step, in its numbers: "0,1"
	AllGPUs      bool   // … all of its job's
	Request      string // of the job, canonical or forged; for a prolog that slurmd left out
	LDPreload    string // the job's own value
	LDPreloadCut bool   // LDPreload is not the whole value
	Binds        Binds
	Wait         time.Duration
}

// StepGRES is what the controller says that the step was given of its job's GRES.
type StepGRES struct {
	Known     bool
	PerNode   string
	Otherwise string // counted by step, socket or task
}

// Plan is what the tasks of a step get. The zero value is a job that is not ours.
type Plan struct {
	Ours        bool
	Env         []grant.EnvVar
	Strict      bool // the rest is for a mount namespace of the step's own
	StepDir     string
	PreloadFile string
	Library     string        // the interposer, for the guards
	Guards      []grant.Guard // over the driver's libraries
	PagesDir    string        // the job's pages
	AllPages    string        // the folder of those of all jobs
	Mask        []string      // device nodes that no task may open
	Foreign     int           // how many of them, the first, are of GPUs that the job does not hold; where no library is loaded
	Own         []OwnDevice   // … that they may, where the node's are closed
	Whole       []grant.WholeGPU
	BindTasks   bool // Whole are slices, of which each task sees one

	DenyUserNamespaces bool
}

const (
	pollEvery = 10 * time.Millisecond
	// atWorkFactor is how much longer a prolog is waited for that has begun: it asks a controller
	// that may be slow, and then queues for the lock.
	atWorkFactor = 24
)

// Prepare makes the step's folder and the plan for its tasks. An error is the reason for which
// no task may start, in words for the user.
func Prepare(s Step) (Plan, error) {
	held, err := await(s)
	if err != nil || held == nil {
		return Plan{}, err
	}
	switch {
	case held.Refusal != "":
		return Plan{}, errors.New(held.Refusal)
	case held.Job != s.Job || held.UID != s.UID:
		return Plan{}, fmt.Errorf("read grant of job %d: it is of job %d and uid %d", s.Job, held.Job, held.UID)
	}
	if held.Whole {
		return wholePlan(s, *held)
	}
	var asked request.Request
	if !s.WholeJob {
		if asked, err = s.Options.Request(); err != nil {
			return Plan{}, err
		}
	}
	given, err := s.GRES.parse(*held)
	if err != nil {
		return Plan{}, err
	}
	prepared, err := grant.Prepare(s.RunDir, *held, s.Step, rundir.StepName(s.Step), asked, given)
	if err != nil {
		return Plan{}, err
	}
	if held.Isolation == grant.IsolationWall {
		if err := raiseWall(s, *held); err != nil {
			return Plan{}, err
		}
	}
	p, err := plan(s, *held, prepared)
	if err == nil && !s.AllGPUs && bound(*held, asked) == request.BindTask {
		p.BindTasks, p.Whole = true, seenByTasks(prepared)
	}
	return p, err
}

// Finish keeps the step's usage, and removes its folder. Its text is for the job's user: which steps of the job were frozen or killed
// because they got around its share. Only the batch script's step has an output that is still open by now; it is the job's last.
func Finish(s Step) (says string, err error) {
	name := rundir.StepName(s.Step)
	if name == "batch" {
		caught, caughtErr := usage.CaughtIn(s.RunDir, s.Job)
		if caughtErr == nil {
			says = caught.Words()
		}
	}
	return says, usage.FinishStep(s.RunDir, s.Job, s.Step, name)
}

// await reads the grant, or learns that the job has none. While neither is known it waits for a
// prolog that is at work, and runs one that has not begun. It is nil for a job without vgpu, and on a
// node where no prolog ever ran.
func await(s Step) (*grant.Grant, error) {
	start := time.Now()
	ran := false
	for {
		waited := time.Since(start)                // before the look, which is the last one when it is too long
		atWork := isThere(s.RunDir.Pending(s.Job)) // before the look too: what a prolog wrote is final once its mark is gone
		held, err := grant.Read(s.RunDir.Grant(s.Job))
		if err == nil && !(atWork && mayBeRequeued(held) && waited < atWorkFactor*s.Wait) {
			return &held, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if isThere(s.RunDir.None(s.Job)) {
			return nil, nil
		}
		switch {
		case atWork || isThere(s.RunDir.Pending(s.Job)):
			if waited >= atWorkFactor*s.Wait {
				return nil, fmt.Errorf("vgpu-prolog is still at work for job %d", s.Job)
			}
		case ran:
			return nil, fmt.Errorf("vgpu-prolog says nothing about job %d", s.Job)
		default:
			var said string
			if said, ran, err = runProlog(s); err != nil {
				return nil, err
			}
			if none, refusal := grant.Said(said); none {
				return nil, nil
			} else if refusal != "" {
				return nil, errors.New(refusal)
			}
			if ran {
				continue
			}
			if waited >= s.Wait {
				return nil, noProlog(s)
			}
		}
		time.Sleep(pollEvery)
	}
}

// mayBeRequeued says that a prolog that is at work has refused the job and may be about to put it back into the queue. Slurm 22.05 now
// and then starts the batch step of a requeued job beside its prolog: if that step failed first, so would the job.
func mayBeRequeued(held grant.Grant) bool { return held.Refusal != "" && !held.Requeued }

// noProlog is about a node where no prolog has run since it was booted.
func noProlog(s Step) error {
	given, err := s.GRES.parse(grant.Grant{})
	if s.Options.First() == "" && s.Request == "" && err == nil && (given == nil || given.IsZero()) {
		return nil
	}
	return fmt.Errorf("job %d asks for vgpu, but vgpu-prolog has not prepared it on this node", s.Job)
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func plan(s Step, held grant.Grant, prepared grant.Step) (Plan, error) {
	p := Plan{
		Ours:        true,
		Env:         prepared.Env,
		Strict:      held.IsStrict(),
		StepDir:     prepared.Dir,
		PreloadFile: prepared.PreloadFile,
		PagesDir:    s.RunDir.Pages(s.Job),
		AllPages:    s.RunDir.AllPages(),
	}
	if !p.Strict {
		if s.LDPreloadCut {
			return Plan{}, errors.New("LD_PRELOAD of the job is too long to be added to")
		}
		p.Env = append(p.Env, grant.EnvVar{Name: "LD_PRELOAD", Value: prependPreload(s.LDPreload, held.Library)})
		return p, nil
	}
	p.Library, p.Guards, p.DenyUserNamespaces = held.Library, held.Guards, held.DenyUserNamespaces
	p.Env = append(p.Env, s.Binds.env()...)
	p.Mask, p.Own = nodesOf(held, prepared.MaskMinors), ownDevices(held, prepared.OwnMinors)
	return p, nil
}
