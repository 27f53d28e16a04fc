// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

var elsewhere = slurm.Standing{State: "RUNNING", Nodes: "n[2-3]"}

// changed rewrites the list.
func (w Waker) changed(t *testing.T, how func(*Job)) {
	t.Helper()
	jobs, err := Read(w.Config.Spool())
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		how(&jobs[i])
	}
	if err := Write(w.Config.Spool(), jobs); err != nil {
		t.Fatal(err)
	}
}

// unasked is a while later.
func (w Waker) unasked(t *testing.T) {
	t.Helper()
	w.changed(t, func(job *Job) {
		if job.IsAway() {
			job.Away = job.Away.Add(-AwayUnasked)
		}
	})
}

// wake leaves these on the list.
func (w Waker) wake(t *testing.T, left ...uint32) {
	t.Helper()
	if err := w.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.left(t); !slices.Equal(got, left) {
		t.Errorf("on the list are %v, want %v", got, left)
	}
}

// barring has a job that must not come here, and another one.
func barring(t *testing.T) (Waker, *controller) {
	t.Helper()
	c := &controller{standings: map[uint32]slurm.Standing{1: elsewhere, 2: pending}, excluded: map[uint32]string{1: "n1,n9"}}
	w := node(t, c, 60, 60)
	w.list(t, time.Time{}, 35, 30)
	w.changed(t, func(job *Job) { job.Barred = job.Job == 1 })
	return w, c
}

// A job that was kept out here and runs elsewhere may be put back there: nobody else would let it in here again.
func TestWhoRunsElsewhereIsNotForgotten(t *testing.T) {
	w, c := barring(t)
	w.wake(t, 1, 2) // and it keeps nothing: the other is told
	want := []string{`2 for 0s on ""`}
	delete(c.standings, 1)
	w.wake(t, 1, 2) // nobody asked about it
	c.standings[1] = slurm.Standing{State: "COMPLETING", Nodes: "n2"}
	w.unasked(t)
	w.wake(t, 1, 2)
	if !slices.Equal(c.told, want) {
		t.Errorf("told %q, want %q", c.told, want)
	}
	c.standings[1] = pending
	w.unasked(t)
	w.wake(t, 2, 1) // behind who waited meanwhile
	if want = append(want, `1 for 0s on "n1,n9 without n1, before n9"`); !slices.Equal(c.told, want) {
		t.Errorf("told %q, want %q", c.told, want)
	}
}

func TestWhoHasEndedElsewhereIsForgotten(t *testing.T) {
	w, c := barring(t)
	w.wake(t, 1, 2)
	c.standings[1] = slurm.Standing{State: "COMPLETED", Nodes: "n2"}
	w.unasked(t)
	w.wake(t, 2)
	w, c = barring(t)
	w.wake(t, 1, 2)
	delete(c.standings, 1)
	w.unasked(t)
	w.wake(t, 2)
}

// Who reads the list before another writes it has not asked about all that stands there then.
func TestWhoComesBackMeanwhileIsKept(t *testing.T) {
	w, c := barring(t)
	w.wake(t, 1, 2)
	w.unasked(t)
	w.list(t, time.Time{}, 95, 96, 97) // nobody fits
	w.changed(t, func(job *Job) {
		if job.Job == 1 {
			job.Barred, job.Away = true, time.Now().Add(-time.Hour).UTC()
		}
	})
	c.standings = map[uint32]slurm.Standing{1: pending, 2: pending, 3: pending}
	other := w
	w.Controller = &meanwhile{controller: c, do: func() { other.wake(t, 2, 3, 1) }}
	if _, err := w.Forget(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := w.left(t); !slices.Equal(got, []uint32{2, 3, 1}) {
		t.Errorf("on the list are %v", got)
	}
}

// meanwhile has something else done while it is asked.
type meanwhile struct {
	*controller
	do func()
}

func (m *meanwhile) Standings(ctx context.Context, ids []uint32) (map[uint32]slurm.Standing, error) {
	if do := m.do; do != nil {
		m.do = nil
		do()
	}
	found := make(map[uint32]slurm.Standing)
	for _, id := range ids {
		found[id] = m.standings[id]
	}
	return found, nil
}

// A job that comes back held is neither told nor forgotten.
func TestWhoComesBackHeldIsKept(t *testing.T) {
	w, c := barring(t)
	w.wake(t, 1, 2)
	want := slices.Clone(c.told)
	for _, state := range []string{"SPECIAL_EXIT", "REQUEUE_HOLD", "REQUEUED", "RESV_DEL_HOLD"} {
		c.standings[1] = slurm.Standing{State: state}
		w.unasked(t)
		w.wake(t, 1, 2)
	}
	if !slices.Equal(c.told, want) {
		t.Errorf("told %q", c.told)
	}
}

// No user fills the list with those that are away.
func TestFewThatAreAwayAreKept(t *testing.T) {
	c := &controller{standings: map[uint32]slurm.Standing{}}
	w := node(t, c, 100, 100)
	var jobs Jobs
	ask := func(from, to uint32) {
		c.standings = make(map[uint32]slurm.Standing)
		for job := range uint32(200) {
			c.standings[job+1] = pending
			if job+1 >= from && job < to {
				c.standings[job+1] = slurm.Standing{State: "SUSPENDED", Nodes: "n2"}
			}
		}
	}
	for i := range uint32(200) {
		jobs = append(jobs, Job{Job: i + 1, UID: i % 6, Since: time.Now().Add(-time.Hour).UTC(), Barred: true, Want: place.Want{Slices: 1, Mem: request.Mem{MiB: 1}}})
	}
	if err := Write(w.Config.Spool(), jobs); err != nil {
		t.Fatal(err)
	}
	for from := uint32(181); from < 200; from -= 20 { // the youngest first
		ask(from, 200)
		if err := w.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(w.left(t)); got != MostAway {
		t.Errorf("%d are kept, want %d", got, MostAway)
	}
}
