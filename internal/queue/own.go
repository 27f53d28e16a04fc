// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// Where a job waits for a node that does not tell it of room, because its epilog or the node died, it comes back by
// itself when the jobs in its way must have ended, but at the latest after some hours.
const (
	shortestWait = time.Minute
	// UnlistedWait is the least for one that is not listed: it comes without having been told, and there are many like it.
	UnlistedWait = 10 * time.Minute
)

// Own picks the GPUs of one job for a prolog, in turn with those that wait for the node.
type Own struct {
	Waker
	Slurm slurm.Client
	Job   uint32
	Rules place.Rules

	wait     *wait     // nil: the job does not wait
	expected time.Time // when there is room for it at the latest; zero: not known
}

// wait is how a job waits that this node has no room for.
type wait struct {
	job       Job
	elsewhere bool // it may run on another node meanwhile
	never     bool // … or must
	unlisted  bool // too many wait, it is not told of room
	victims   []slurm.Preemption
}

// Place places the job behind the jobs that have waited longer.
func (o *Own) Place(tx *state.Tx, want place.Want, inventory device.Inventory) ([]device.Slice, *place.Refusal) {
	jobs := o.jobs()
	turns := place.Queue(inventory, tx.Held(), append(jobs.Before(o.Job, time.Now()), place.Waiter{Job: o.Job, Want: want}), o.Rules)
	turn := turns[len(turns)-1]
	if _, waited := jobs.Find(o.Job); turn.Why == nil && waited {
		if err := Write(o.Config.Spool(), jobs.Without(o.Job)); err != nil {
			o.Log.Error("the job stays among those that wait", "reason", err)
		}
	}
	o.expected = timeOf(turn.At)
	return turn.Slices, turn.Why
}

func (o *Own) jobs() Jobs {
	jobs, err := Read(o.Config.Spool())
	if err != nil {
		o.Log.Error("the list of waiting jobs cannot be read", "reason", err)
	}
	return jobs
}

// Fewer drops waiting jobs that are gone, so that none of them keeps others out. It says whether there were any.
func (o *Own) Fewer(ctx context.Context) bool {
	fewer, err := o.Forget(ctx, o.Job)
	if err != nil {
		o.Log.Warn("jobs that do not wait any more may keep others out", "reason", err)
	}
	return fewer
}

// NoRoom says whether a batch job that fits no GPU now waits for one, in Slurm's queue.
func (o *Own) NoRoom(ctx context.Context, g grant.Grant, want place.Want, inventory device.Inventory, refusal *place.Refusal, told slurm.Job) bool {
	elsewhere, err := o.Slurm.Elsewhere(ctx, told, o.Node)
	if err != nil {
		o.Log.Warn("the job waits for this node, without trying others", "reason", err)
	}
	never := refusal.Kind == place.Never
	if never && !elsewhere {
		return false
	}
	name, err := told.Name()
	if err != nil {
		o.Log.Error("the job fails instead of going back into the queue", "reason", err)
		return false
	}
	o.wait = &wait{elsewhere: elsewhere, never: never, job: Job{Job: g.Job, Name: name, Restart: g.Restart, UID: g.UID,
		Want: want, Limit: told.Limit, Since: g.Since, Last: g.Since, Reason: refusal.Reason, Excluded: told.Excluded, Barred: elsewhere}}
	if refusal.Kind == place.Fragmented && !elsewhere {
		o.wait.victims = o.victims(ctx, want, inventory)
	}
	return true
}

// Waits says that the job goes back as often as it must.
func (o *Own) Waits() bool { return o.wait != nil }

// Refused puts the job among those that wait for this node. The caller holds the lock.
func (o *Own) Refused() {
	if o.wait == nil || o.wait.never {
		return
	}
	jobs := o.jobs().Put(o.wait.job)
	if _, listed := jobs.Find(o.Job); !listed {
		o.wait.unlisted = true
		o.Log.Warn("the job waits without a claim, and free room does not start it", "uid", o.wait.job.UID,
			"reason", "too many jobs wait already", "most_of_user", MostOfUser, "most", Most)
	}
	if err := Write(o.Config.Spool(), jobs); err != nil {
		o.Log.Error("the job waits without a claim, and free room does not start it", "reason", err)
	}
}

// Stayed takes it off again: it was not put back.
func (o *Own) Stayed(ctx context.Context) {
	if o.wait == nil {
		return
	}
	if err := o.change(ctx, func(_ *state.Tx, jobs Jobs) Jobs { return jobs.Without(o.Job) }); err != nil {
		o.Log.Error("the job stays among those that wait until it has ended", "reason", err)
	}
}

// Back tells the controller, after the job was requeued, when and where it may start again. Without that it comes
// back after Slurm's own delay.
func (o *Own) Back(ctx context.Context, told slurm.Job) {
	if o.wait == nil {
		return
	}
	w := slurm.Wait{For: slurm.Soon, Reason: fmt.Sprintf("%s: %s", o.Node, o.wait.job.Reason)}
	if o.wait.elsewhere {
		w.Elsewhere, w.Excluded = true, slurm.With(told.Excluded, o.Node)
	} else {
		w.For = LongestWait
		if !o.expected.IsZero() {
			w.For = min(max(time.Until(o.expected), shortestWait), LongestWait)
		}
		if o.wait.unlisted {
			w.For = max(w.For, UnlistedWait)
		}
	}
	if err := o.Slurm.Wait(ctx, told, w); err != nil {
		o.Log.Error("the job comes back after Slurm's own delay", "reason", err)
	}
	if err := o.TellAgain(ctx, told.ID); err != nil {
		o.Log.Error("the job may not know of room before the next epilog", "reason", err)
	}
	o.preempt(ctx)
}

// victims are the jobs that Slurm would have ended for this one, if it had known that they are in its way: by its
// counts there is room.
func (o *Own) victims(ctx context.Context, want place.Want, inventory device.Inventory) (victims []slurm.Preemption) {
	snapshot, err := o.Store.Read()
	if err != nil {
		o.Log.Warn("no job is preempted", "reason", err)
		return nil
	}
	var held []place.Held
	var others []uint32
	for _, s := range snapshot.Slices {
		held = append(held, place.Held{Slice: s.Slice, Job: s.Job})
		others = append(others, s.Job)
	}
	may, err := o.Slurm.Preemptible(ctx, o.Job, others)
	if err != nil {
		o.Log.Warn("no job is preempted", "reason", err)
		return nil
	}
	jobs := make(map[uint32]bool)
	for job := range may {
		jobs[job] = true
	}
	for _, job := range place.Victims(inventory, held, want, o.Rules, jobs) {
		victims = append(victims, may[job])
	}
	return victims
}

// preempt ends the jobs that are in the way of one that waits. Their epilogs tell it.
func (o *Own) preempt(ctx context.Context) {
	for _, victim := range o.wait.victims {
		if err := o.Slurm.Preempt(ctx, victim); err != nil {
			o.Log.Error("a job that is in the way stays", "victim", victim.Name, "reason", err)
			continue
		}
		o.Log.Warn("a job was preempted, as slurm.conf says, because no GPU had room", "victim", victim.Name, "requeued", victim.Requeue)
	}
}

// timeOf is a time in seconds; 0 is none.
func timeOf(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
