// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// controller stands in for slurmctld.
type controller struct {
	standings map[uint32]slurm.Standing
	excluded  map[uint32]string
	away      error
	refuses   map[uint32]bool
	told      []string
}

func (c *controller) Standings(context.Context, []uint32) (map[uint32]slurm.Standing, error) {
	return c.standings, c.away
}

func (c *controller) Job(_ context.Context, id uint32) (slurm.Job, error) {
	return slurm.Job{ID: id, Excluded: c.excluded[id]}, nil
}

func (c *controller) Readmit(_ context.Context, job slurm.Job, node, before string) (string, error) {
	return fmt.Sprintf("%s without %s, before %s", job.Excluded, node, before), nil
}

func (c *controller) Wait(_ context.Context, job slurm.Job, w slurm.Wait) error {
	if c.refuses[job.ID] {
		return errors.New("no")
	}
	c.told = append(c.told, fmt.Sprintf("%d for %v on %q", job.ID, w.For, w.Excluded))
	return nil
}

// node has two GPUs of 100 MiB, with as much taken on each.
func node(t *testing.T, c *controller, taken ...int64) Waker {
	t.Helper()
	cfg := config.Default()
	cfg.RunDir, cfg.SpoolDir = t.TempDir(), t.TempDir()
	w := Waker{Config: cfg, Node: "n1", Controller: c, Log: hclog.NewNullLogger(),
		Store: state.Of(cfg, "b", hclog.NewNullLogger())}
	inv := device.Inventory{BootID: "b"}
	tx, err := w.Store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.End()
	for i, mib := range taken {
		uuid := device.UUID(fmt.Sprintf("GPU-%08d", i))
		inv.GPUs = append(inv.GPUs, device.GPU{UUID: uuid, Index: device.NVMLIndex(i), Minor: device.Minor(i), Type: "h200", MemMiB: 100})
		tx.Put(uint32(100+i), []state.Slice{{Job: uint32(100 + i), Since: state.MillisOf(time.Now()), Slice: device.Slice{Device: uuid, MemMiB: mib}}})
	}
	if err := errors.Join(tx.Commit(), inventory.Write(cfg.Run().Inventory(), inv)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w Waker) list(t *testing.T, last time.Time, mib ...int64) {
	t.Helper()
	var jobs Jobs
	for i, m := range mib {
		jobs = jobs.Put(Job{Job: uint32(i + 1), UID: uint32(i % 2), Since: time.Now().Add(time.Duration(i-60) * time.Minute).UTC(), Last: last, Excluded: "n9",
			Want: place.Want{Slices: 1, Mem: request.Mem{MiB: m}}})
	}
	if err := Write(w.Config.Spool(), jobs); err != nil {
		t.Fatal(err)
	}
}

func (w Waker) left(t *testing.T) []uint32 {
	t.Helper()
	jobs, err := Read(w.Config.Spool())
	if err != nil {
		t.Fatal(err)
	}
	return jobs.Numbers()
}

var pending = slurm.Standing{State: "PENDING", Reason: "BeginTime"}

type wakeCase struct {
	name      string
	taken     []int64
	waiting   []int64
	standings []slurm.Standing
	excluded  map[uint32]string
	later     time.Duration // than an hour ago, that it was put back
	told      []string
	left      []uint32
}

var whoFits = []wakeCase{
	{name: "nobody fits", taken: []int64{60, 60}, waiting: []int64{50}, standings: []slurm.Standing{pending}, left: []uint32{1}},
	{name: "one fits", taken: []int64{60, 40}, waiting: []int64{50}, standings: []slurm.Standing{pending}, told: []string{`1 for 0s on ""`}, left: []uint32{1}},
	{name: "its node is let in", taken: []int64{60, 40}, waiting: []int64{50}, standings: []slurm.Standing{pending}, excluded: map[uint32]string{1: "n1,n9"},
		told: []string{`1 for 0s on "n1,n9 without n1, before n9"`}, left: []uint32{1}},
	{name: "the nodes still let go of it", taken: []int64{60, 40}, waiting: []int64{50}, standings: []slurm.Standing{{State: "COMPLETING"}},
		told: []string{`1 for 3s on ""`}, left: []uint32{1}},
	{name: "it was put back a moment ago", taken: []int64{60, 40}, waiting: []int64{50}, standings: []slurm.Standing{pending}, later: time.Hour - time.Second,
		told: []string{`1 for 2s on ""`}, left: []uint32{1}},
	{name: "room for one of two", taken: []int64{60, 40}, waiting: []int64{50, 50}, standings: []slurm.Standing{pending, pending},
		told: []string{`1 for 0s on ""`}, left: []uint32{1, 2}},
	{name: "room for two", taken: []int64{40, 40}, waiting: []int64{50, 50}, standings: []slurm.Standing{pending, pending},
		told: []string{`1 for 0s on ""`, `2 for 0s on ""`}, left: []uint32{1, 2}},
	{name: "a small one does not overtake", taken: []int64{60, 80}, waiting: []int64{80, 30}, standings: []slurm.Standing{pending, pending}, left: []uint32{1, 2}},
	{name: "but goes where there is room for both", taken: []int64{60, 80}, waiting: []int64{50, 30}, standings: []slurm.Standing{pending, pending},
		told: []string{`2 for 0s on ""`}, left: []uint32{1, 2}},
	{name: "or nothing is kept", taken: []int64{60, 60}, waiting: []int64{50, 30}, standings: []slurm.Standing{pending, pending},
		told: []string{`2 for 0s on ""`}, left: []uint32{1, 2}},
	{name: "who is gone keeps nothing", taken: []int64{60, 80}, waiting: []int64{50, 30}, standings: []slurm.Standing{{State: "CANCELLED"}, pending},
		told: []string{`2 for 0s on ""`}, left: []uint32{2}},
	{name: "who runs elsewhere keeps nothing", taken: []int64{60, 80}, waiting: []int64{50, 30}, standings: []slurm.Standing{{State: "RUNNING", Nodes: "n[2-3]"}, pending},
		told: []string{`2 for 0s on ""`}, left: []uint32{2}},
	{name: "who is about to begin here has the room", taken: []int64{40, 80}, waiting: []int64{50, 30}, standings: []slurm.Standing{{State: "CONFIGURING", Nodes: "n[1-3]"}, pending},
		left: []uint32{1, 2}},
	{name: "who is held keeps nothing", taken: []int64{60, 80}, waiting: []int64{50, 30}, standings: []slurm.Standing{{State: "PENDING", Reason: "JobHeldUser"}, pending},
		told: []string{`2 for 0s on ""`}, left: []uint32{1, 2}},
	{name: "who is held is told all the same", taken: []int64{40, 80}, waiting: []int64{50}, standings: []slurm.Standing{{State: "PENDING", Reason: "JobHeldUser"}},
		told: []string{`1 for 0s on ""`}, left: []uint32{1}},
}

// What a job's owner or an administrator did to it.
var whoKeepsNothing = []wakeCase{
	{name: "who waits for another job keeps nothing", taken: []int64{60, 80}, waiting: []int64{50, 30}, standings: []slurm.Standing{{State: "PENDING", Reason: "Dependency"}, pending},
		told: []string{`2 for 0s on ""`}, left: []uint32{1, 2}},
	{name: "who is put off for long keeps nothing", taken: []int64{60, 80}, waiting: []int64{50, 30},
		standings: []slurm.Standing{{State: "PENDING", Reason: "BeginTime", Begins: time.Now().Add(5 * time.Hour)}, pending},
		told:      []string{`2 for 0s on ""`}, left: []uint32{1, 2}},
	{name: "and is left so", taken: []int64{40, 80}, waiting: []int64{50},
		standings: []slurm.Standing{{State: "PENDING", Reason: "BeginTime", Begins: time.Now().Add(5 * time.Hour)}}, left: []uint32{1}},
	{name: "who was put off by a prolog is told", taken: []int64{40, 80}, waiting: []int64{50},
		standings: []slurm.Standing{{State: "PENDING", Reason: "BeginTime", Begins: time.Now().Add(LongestWait)}}, told: []string{`1 for 0s on ""`}, left: []uint32{1}},
}

func TestWhoFitsIsTold(t *testing.T) {
	for _, tc := range append(whoFits, whoKeepsNothing...) {
		t.Run(tc.name, func(t *testing.T) {
			c := &controller{standings: map[uint32]slurm.Standing{}, excluded: tc.excluded}
			for i, s := range tc.standings {
				c.standings[uint32(i+1)] = s
			}
			w := node(t, c, tc.taken...)
			w.list(t, time.Now().Add(tc.later-time.Hour), tc.waiting...)
			for range 2 { // nobody is told twice
				if err := w.Wake(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(c.told, tc.told) {
				t.Errorf("told %q, want %q", c.told, tc.told)
			}
			if got := w.left(t); !slices.Equal(got, tc.left) {
				t.Errorf("there wait %v, want %v", got, tc.left)
			}
		})
	}
}

func TestWhoCouldNotBeToldIsToldLater(t *testing.T) {
	c := &controller{standings: map[uint32]slurm.Standing{1: pending, 2: pending}, refuses: map[uint32]bool{1: true}}
	w := node(t, c, 40, 40)
	w.list(t, time.Time{}, 50, 50)
	if err := w.Wake(t.Context()); err == nil {
		t.Error("nothing is said of the one that could not be told")
	}
	c.refuses = nil
	if err := w.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{`2 for 0s on ""`, `1 for 0s on ""`}; !slices.Equal(c.told, want) {
		t.Errorf("told %q, want %q", c.told, want)
	}
	c.away = errors.New("away")
	if err := w.Wake(t.Context()); err == nil {
		t.Error("nothing is said of a controller that is away")
	}
	if got := w.left(t); !slices.Equal(got, []uint32{1, 2}) {
		t.Errorf("there wait %v", got)
	}
}

// A job that was told and did not come is told again once the room was gone and is back.
func TestWhoDidNotComeKeepsNothing(t *testing.T) {
	c := &controller{standings: map[uint32]slurm.Standing{1: {State: "PENDING", Reason: "Resources"}, 2: pending}}
	w := node(t, c, 40, 80)
	w.list(t, time.Time{}, 50, 50)
	jobs, _ := Read(w.Config.Spool())
	jobs[0].Told = time.Now().Add(-ComesWithin - time.Second).UTC()
	if err := Write(w.Config.Spool(), jobs); err != nil {
		t.Fatal(err)
	}
	if err := w.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{`2 for 0s on ""`}; !slices.Equal(c.told, want) {
		t.Errorf("told %q, want %q", c.told, want)
	}
	tx, err := w.Store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx.Change(func(s *state.Slice) { s.MemMiB = 90 })
	err = tx.Commit()
	tx.End()
	if err = errors.Join(err, w.Wake(t.Context())); err != nil { // the room is gone
		t.Fatal(err)
	}
	if tx, err = w.Store.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx.Change(func(s *state.Slice) { s.MemMiB = 40 })
	err = tx.Commit()
	tx.End()
	if err = errors.Join(err, w.Wake(t.Context())); err != nil {
		t.Fatal(err)
	}
	if want := []string{`2 for 0s on ""`, `1 for 0s on ""`}; !slices.Equal(c.told, want) {
		t.Errorf("when room was back: told %q, want %q", c.told, want)
	}
}

// An epilog that was killed may have written down that a job was told, and not have told it.
func TestWhoHasNotHeardIsToldAgain(t *testing.T) {
	c := &controller{standings: map[uint32]slurm.Standing{1: pending}}
	w := node(t, c, 40, 80)
	w.list(t, time.Time{}, 50)
	jobs, err := Read(w.Config.Spool())
	if err != nil {
		t.Fatal(err)
	}
	jobs[0].Told = time.Now().Add(-lately - time.Second).UTC()
	if err := errors.Join(Write(w.Config.Spool(), jobs), w.Wake(t.Context())); err != nil {
		t.Fatal(err)
	}
	if want := []string{`1 for 0s on ""`}; !slices.Equal(c.told, want) {
		t.Errorf("told %q, want %q", c.told, want)
	}
}

// Whose owner puts its start off each time that it is told keeps the room from nobody in the end.
func TestWhoNeverComesKeepsNothing(t *testing.T) {
	c := &controller{standings: map[uint32]slurm.Standing{1: pending, 2: pending}}
	w := node(t, c, 40, 80)
	w.list(t, time.Time{}, 50, 50)
	for range MissesAtMost {
		if slices.Contains(c.told, `2 for 0s on ""`) {
			t.Fatalf("told too soon: %q", c.told)
		}
		jobs, err := Read(w.Config.Spool())
		if err != nil {
			t.Fatal(err)
		}
		jobs[0].Told = time.Now().Add(-lately - time.Second).UTC()
		if err := errors.Join(Write(w.Config.Spool(), jobs), w.Wake(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(c.told, `2 for 0s on ""`) {
		t.Errorf("the room is kept for one that was told %d times and never came: %q", MissesAtMost, c.told)
	}
}

// Who cancels each job that was told, before it is known that it does not come, is careless as well.
func TestWhoCancelsWhatWasToldKeepsNothing(t *testing.T) {
	for state, careless := range map[string]bool{"": true, "CANCELLED": true, "DEADLINE": true, "COMPLETED": false, "FAILED": false} { // "": slurmctld knows it no more
		t.Run(state, func(t *testing.T) { toldAndGone(t, state, careless) })
	}
}

// toldAndGone has the jobs of a user told of room one after the other, and each end in a state before the next.
func toldAndGone(t *testing.T, state string, careless bool) {
	const jobs = 2*MissesAtMost + 3
	c := &controller{standings: make(map[uint32]slurm.Standing)}
	for id := range uint32(jobs) {
		c.standings[id+1] = pending
	}
	w := node(t, c, 40, 80)
	w.list(t, time.Time{}, slices.Repeat([]int64{50}, jobs)...)
	listed, err := Read(w.Config.Spool())
	for i := range listed {
		listed[i].UID = 1
	}
	if err := errors.Join(err, Write(w.Config.Spool(), listed)); err != nil {
		t.Fatal(err)
	}
	for told := range uint32(2*MissesAtMost + 1) {
		if err := w.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(c.told) != int(told)+1 {
			t.Fatalf("one after the other is told while none is careless: %q", c.told)
		}
		if c.standings[told+1] = (slurm.Standing{State: state}); state == "" {
			delete(c.standings, told+1)
		}
	}
	if err := w.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := Read(w.Config.Spool())
	if err != nil || len(left) == 0 {
		t.Fatalf("%d wait: %v", len(left), err)
	}
	if left.Careless(time.Now())[left[0].UID] != careless {
		t.Errorf("all that were told are %s, and that its user is careless is not %v: %+v", state, careless, left)
	}
}

// A prolog that puts off the start of a job that was told meanwhile must take that back.
func TestTellAgain(t *testing.T) {
	c := &controller{standings: map[uint32]slurm.Standing{1: pending, 2: pending}}
	w := node(t, c, 40, 80)
	w.list(t, time.Time{}, 50, 50)
	for range 2 {
		if err := w.TellAgain(t.Context(), 1); err != nil || len(c.told) > 0 {
			t.Fatalf("it was not told before: %q, %v", c.told, err)
		}
	}
	if err := w.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, job := range []uint32{1, 2, 3} {
		if err := w.TellAgain(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{`1 for 0s on ""`, `1 for 0s on ""`}; !slices.Equal(c.told, want) {
		t.Errorf("told %q, want %q", c.told, want)
	}
}

func TestForget(t *testing.T) {
	c := &controller{standings: map[uint32]slurm.Standing{1: {State: "COMPLETED"}, 2: {State: "COMPLETED"}, 3: pending}}
	w := node(t, c, 40, 80)
	if fewer, err := w.Forget(t.Context(), 0); fewer || err != nil {
		t.Errorf("of nobody: %v, %v", fewer, err)
	}
	w.list(t, time.Time{}, 50, 50, 50)
	if fewer, err := w.Forget(t.Context(), 2); !fewer || err != nil {
		t.Errorf("%v, %v", fewer, err)
	}
	if got := w.left(t); !slices.Equal(got, []uint32{2, 3}) {
		t.Errorf("there wait %v", got)
	}
	if fewer, err := w.Forget(t.Context(), 2); fewer || err != nil {
		t.Errorf("again: %v, %v", fewer, err)
	}
}

// However many have room at once, one epilog tells some of them, and the next one others.
func TestNotAllAreToldAtOnce(t *testing.T) {
	const jobs = tellsAtMost + 5
	c := &controller{standings: map[uint32]slurm.Standing{}}
	var mib []int64
	for id := range uint32(jobs) {
		c.standings[id+1] = slurm.Standing{State: "PENDING", Reason: "JobHeldUser"}
		mib = append(mib, 50)
	}
	w := node(t, c, 40, 80)
	w.list(t, time.Time{}, mib...)
	for _, want := range []int{tellsAtMost, jobs} {
		if err := w.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(c.told) != want {
			t.Errorf("%d are told, want %d", len(c.told), want)
		}
	}
}

// A list from before the site moved to shards concerns nobody: Slurm has counted other jobs there.
func TestWhereSlurmPicksNobodyIsTold(t *testing.T) {
	c := &controller{standings: map[uint32]slurm.Standing{1: pending}}
	w := node(t, c, 40)
	w.list(t, time.Time{}, 50)
	w.Config.Shards = true
	if err := w.Wake(t.Context()); err != nil || len(c.told) > 0 {
		t.Errorf("told %q, %v", c.told, err)
	}
}
