// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	// lockWait is how long this queues behind prologs and epilogs.
	lockWait = 30 * time.Second
	// settling is for a job whose nodes have not let go of it yet: Slurm takes a start that has passed by then for
	// none, and puts its own delay there.
	settling = 3 * time.Second
	// slurmd takes a run that begins within the second of a requeue for the one that was requeued ("already killed, do not
	// launch batch job"), and the job fails. It may have been requeued some time after it was found to have no room.
	sameSecond = 2 * time.Second
	lately     = 10 * time.Second
	// tellsAtMost bounds what one epilog does for others: each of them is some questions to the controller. The next one goes on.
	tellsAtMost = 20
)

// Controller has the queries and updates for Slurm's controller.
type Controller interface {
	Standings(ctx context.Context, ids []uint32) (map[uint32]slurm.Standing, error)
	Job(ctx context.Context, id uint32) (slurm.Job, error)
	Readmit(ctx context.Context, job slurm.Job, node, before string) (string, error)
	Wait(ctx context.Context, job slurm.Job, w slurm.Wait) error
}

// Waker lets jobs start that wait for one node when there is room for them, the longest waiting first.
type Waker struct {
	Config     config.Config
	Node       string
	Store      state.Store
	Controller Controller
	Log        hclog.Logger
}

// Wake lets the jobs start that have room now. Call it without the lock, when something has become free. Where Slurm picks the GPUs none waits here.
func (w Waker) Wake(ctx context.Context) error {
	if w.Config.Shards {
		return nil
	}
	jobs, err := Read(w.Config.Spool())
	if err != nil || len(jobs) == 0 {
		return err
	}
	asked := jobs.Asked(time.Now(), slurm.AskedAlone)
	if len(asked) == 0 {
		return nil
	}
	standings, err := w.Controller.Standings(ctx, asked)
	if err != nil {
		return err
	}
	tell, err := w.choose(ctx, asked, standings)
	for _, job := range tell {
		if tellErr := w.tell(ctx, job, standings[job.Job]); tellErr != nil {
			err = errors.Join(err, tellErr, w.untold(ctx, job))
			continue
		}
		w.Log.Info("a waiting job has room and may start", "job", job.Job, "waited", time.Since(job.Since).Round(time.Second))
	}
	return err
}

// TellAgain is for a prolog that has put off a job's start: if a Waker started the job before that, the start is lost. Slurm
// 22.05 does not wait for a prolog that a step has started, so that the job's epilog may come first.
func (w Waker) TellAgain(ctx context.Context, id uint32) error {
	jobs, err := Read(w.Config.Spool())
	if job, ok := jobs.Find(id); err != nil || !ok || job.Told.IsZero() {
		return err
	} else if err := w.untold(ctx, job); err != nil {
		return err
	}
	return w.Wake(ctx)
}

// Forget drops jobs that do not wait any more, but not the one that is asked for. It says whether there were any.
func (w Waker) Forget(ctx context.Context, but uint32) (bool, error) {
	jobs, err := Read(w.Config.Spool())
	waits := jobs.Waiting()
	if others := waits.Without(but); err != nil || len(others) == 0 {
		return false, err
	}
	asked := waits.Numbers()
	standings, err := w.Controller.Standings(ctx, asked)
	if err != nil {
		return false, err
	}
	fewer := false
	err = w.change(ctx, func(_ *state.Tx, jobs Jobs) Jobs {
		left := w.refresh(jobs, asked, standings, but)
		fewer = len(left.Before(but, time.Now())) < len(jobs.Before(but, time.Now()))
		return left
	})
	return fewer, err
}

// change rewrites the list under the lock.
func (w Waker) change(ctx context.Context, how func(*state.Tx, Jobs) Jobs) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	tx, err := w.Store.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	jobs, err := Read(w.Config.Spool())
	if err != nil {
		return err
	}
	changed := how(tx, slices.Clone(jobs))
	if reflect.DeepEqual(jobs, changed) {
		return nil
	}
	return Write(w.Config.Spool(), changed)
}

// putOff says that somebody has put off the job's start further than any prolog does. That is respected.
func putOff(standing slurm.Standing) bool {
	const skew = 5 * time.Minute // of clocks
	return standing.Begins.After(time.Now().Add(LongestWait + skew))
}

// refresh drops the jobs that do not wait any more, and marks those that could not come. A job that the controller was
// not asked about stays as it is; so does one that is on its way to this node. One that runs elsewhere and must not come here
// is away: put back, it waits here as well, behind the others, or it would be kept out for good.
func (w Waker) refresh(jobs Jobs, asked []uint32, standings map[uint32]slurm.Standing, but uint32) Jobs {
	var left, gone Jobs
	now := time.Now().UTC()
	for i := range jobs {
		job := &jobs[i]
		standing, known := standings[job.Job]
		switch {
		case job.Job != but && !slices.Contains(asked, job.Job):
			left = append(left, *job)
			continue
		case job.Job == but:
		case standing.Waits():
			if job.IsAway() {
				job.Away, job.Since = time.Time{}, now
			}
		case standing.State == "COMPLETING" || standing.Held():
		case standing.Runs() && slurm.HostlistContains(standing.Nodes, w.Node):
		case standing.Runs() && job.Barred && (job.IsAway() || jobs.RoomAway(job.UID)):
			job.Away, job.Told, job.Missed = now, time.Time{}, 0
		case known || trusted.Age(job.Since) > lockWait:
			if !standing.Runs() && !standing.HasRun() {
				gone = append(gone, *job)
			}
			continue
		}
		job.Idle = standing.Held() || putOff(standing)
		left = append(left, *job)
	}
	left.Sort()
	left.Inherit(gone)
	return left
}

// choose finds out under the lock who has room now, and has not been told.
func (w Waker) choose(ctx context.Context, asked []uint32, standings map[uint32]slurm.Standing) (tell Jobs, err error) {
	inv, err := inventory.Read(w.Config.Run().Inventory())
	if err != nil {
		return nil, fmt.Errorf("wake who waits: %w", err)
	}
	inv = inventory.Leave(inv, w.Config.SlurmGPUs)
	now := time.Now()
	err = w.change(ctx, func(tx *state.Tx, jobs Jobs) Jobs {
		jobs = w.refresh(jobs, asked, standings, 0)
		held := tx.Held()
		rules := place.RulesOf(w.Config.SlicesPerGPU, w.Config.MemOvercommit, w.Config.Drain, w.Config.LatencyPerGPU, w.Config.Place)
		careless := jobs.Careless(now)
		for _, look := range jobs.Looks(now) {
			i, job := look.At, jobs[look.At]
			if putOff(standings[job.Job]) {
				continue
			}
			if len(tell) == tellsAtMost {
				break
			}
			turn := place.Queue(inv, held, []place.Waiter{job.Waiter(now)}, rules)[0]
			// The program that was to start the job may have been killed before: its start still lies ahead.
			unheard := !job.Told.IsZero() && trusted.AgeAt(now, job.Told) > lately && standings[job.Job].Reason == "BeginTime"
			if turn.Slices != nil && (job.Told.IsZero() || unheard) && (standings[job.Job].Waits() || standings[job.Job].State == "COMPLETING") {
				if unheard {
					jobs[i].Missed++
				}
				jobs[i].Told = now
				tell = append(tell, jobs[i])
			}
			if turn.Slices == nil && !job.Told.IsZero() && trusted.AgeAt(now, job.Told) >= ComesWithin {
				jobs[i].Told = time.Time{} // it did not come, and the room is gone: it waits again
				jobs[i].Missed++
			}
			if jobs[i].Claims(now) && !careless[job.UID] {
				for _, s := range turn.Slices {
					held = append(held, place.Held{Slice: s, Ends: job.Waiter(now).Want.Ends})
				}
				rules.Reserved = place.Behind(rules.Reserved, turn, inv, job.Waiter(now).Want)
			}
		}
		return jobs
	})
	return tell, err
}

// tell lets a job start at once, here as well.
func (w Waker) tell(ctx context.Context, job Job, standing slurm.Standing) error {
	told, err := w.Controller.Job(ctx, job.Job)
	if err != nil {
		return err
	}
	wait := slurm.Wait{}
	switch {
	case standing.State == "COMPLETING":
		wait.For = settling
	case trusted.Age(job.Last) < lately:
		wait.For = sameSecond
	}
	if slurm.HostlistContains(told.Excluded, w.Node) {
		wait.Elsewhere = true
		if wait.Excluded, err = w.Controller.Readmit(ctx, told, w.Node, job.Excluded); err != nil {
			return err
		}
	}
	return w.Controller.Wait(ctx, told, wait)
}

// untold takes back that a job was told, so that the next one to come by tries again.
func (w Waker) untold(ctx context.Context, job Job) error {
	return w.change(ctx, func(_ *state.Tx, jobs Jobs) Jobs {
		for i := range jobs {
			if jobs[i].Job == job.Job && jobs[i].Told.Equal(job.Told) {
				jobs[i].Told = time.Time{}
			}
		}
		return jobs
	})
}
