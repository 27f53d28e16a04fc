// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

var errSilent = errors.New("no answer")

// controller knows which jobs live, and in which run; of job 13 it says nothing.
type controller struct {
	restarts map[uint32]int // of jobs that run
	asked    []uint32
	before   func(job uint32) // an answer
}

func (c *controller) Finished(ctx context.Context, job uint32, restart int) (bool, error) {
	c.asked = append(c.asked, job)
	if c.before != nil {
		c.before(job)
	}
	if job == 13 || ctx.Err() != nil {
		return false, errSilent
	}
	now, runs := c.restarts[job]
	return !runs || now > restart, nil
}

type node struct {
	t *testing.T
	Sweeper
	told *controller
}

func newNode(t *testing.T) node {
	t.Helper()
	dir := t.TempDir()
	cfg := config.Default()
	cfg.RunDir, cfg.SpoolDir, cfg.Slurm.SlurmdSpoolDir = dir+"/run", dir+"/spool", dir+"/slurmd"
	if err := os.Mkdir(cfg.Slurm.SlurmdSpoolDir, 0o755); err != nil {
		t.Fatal(err)
	}
	told := &controller{restarts: make(map[uint32]int)}
	n := node{t, Sweeper{Config: cfg, Node: "n1", Store: state.Of(cfg, "b", hclog.NewNullLogger()),
		Controller: told, Log: hclog.NewNullLogger(), Grace: Grace}, told}
	n.check(n.Store.Prepare())
	return n
}

func (n node) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

var longAgo = time.Now().Add(-time.Hour).Truncate(time.Second)

func (n node) old(path string) {
	n.t.Helper()
	n.check(os.Chtimes(path, longAgo, longAgo))
}

func (n node) file(path string) {
	n.t.Helper()
	n.check(os.MkdirAll(filepath.Dir(path), 0o755))
	n.check(os.WriteFile(path, nil, 0o644))
	n.old(path)
}

// folder leaves a job's folder with a grant, or a refusal.
func (n node) folder(job uint32, restart int, refusal string) {
	n.t.Helper()
	g := grant.Grant{Job: job, Restart: restart, BootID: "b", Node: "n1", Since: longAgo, Refusal: refusal}
	if refusal == "" {
		g.Slices = []device.Slice{{Device: "GPU-a", MemMiB: 10}}
	}
	n.check(os.MkdirAll(filepath.Join(n.Store.Dir.Job(job), "steps"), 0o755))
	n.check(grant.Write(n.Store.Dir.Grant(job), g))
	n.old(n.Store.Dir.Job(job))
}

// holds puts slices into the state.
func (n node) holds(job uint32, restart int, since time.Time) {
	n.t.Helper()
	tx, err := n.Store.Begin(context.Background())
	n.check(err)
	defer tx.End()
	tx.Put(job, []state.Slice{{Job: job, Restart: restart, Since: state.MillisOf(since), Slice: device.Slice{Device: "GPU-a", MemMiB: 10}}})
	n.check(tx.Commit())
}

func (n node) names(dir string) (names []string) {
	n.t.Helper()
	entries, err := os.ReadDir(dir)
	if !errors.Is(err, os.ErrNotExist) {
		n.check(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func (n node) sweep() Result {
	n.t.Helper()
	result, err := n.Sweep(context.Background())
	n.check(err)
	return result
}

func (n node) left(want ...string) {
	n.t.Helper()
	if diff := cmp.Diff(want, n.names(n.Store.Dir.Jobs())); diff != "" {
		n.t.Errorf("in jobs/ (-want +got):\n%s", diff)
	}
}

func TestWhatBelongsToNothingGoes(t *testing.T) {
	n := newNode(t)
	n.holds(5, 0, longAgo)
	n.folder(1, 0, "") // killed after the state, before the folder
	n.folder(2, 0, "no room")
	n.check(os.MkdirAll(n.Store.Dir.Job(3), 0o755)) // without a grant
	n.old(n.Store.Dir.Job(3))
	n.folder(4, 0, "")
	n.holds(4, 0, longAgo) // the epilog never came
	n.file(n.Store.Dir.None(6))
	n.file(n.Store.Dir.Pending(7))
	n.file(filepath.Join(string(n.Store.Dir), ".prolog.json123"))
	n.file(filepath.Join(n.Config.Spool().Usage(), ".4.0.json99"))
	n.file(filepath.Join(n.Config.Spool().History(), ".3.0.json98"))
	want := Waiting{Slices: 2, Folders: 4, Marks: 2, Temporaries: 3, Jobs: []uint32{4, 5}, Oldest: longAgo}
	waiting, err := n.Count(context.Background())
	n.check(err)
	slices.Sort(waiting.Jobs)
	if !waiting.Oldest.Equal(want.Oldest) {
		t.Errorf("oldest %v, want %v", waiting.Oldest, want.Oldest)
	}
	waiting.Oldest = want.Oldest
	if diff := cmp.Diff(want, waiting); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Result{Slices: 2, Folders: 4, Marks: 2, Temporaries: 3, Recorded: true, Looked: true}, n.sweep()); diff != "" {
		t.Errorf("swept (-want +got):\n%s", diff)
	}
	n.left()
	if diff := cmp.Diff([]string{"1.0.json", "2.0.json", "4.0.json"}, n.names(n.Config.Spool().Usage())); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if left, err := n.Count(context.Background()); err != nil || left.Any() {
		t.Errorf("after the sweep there wait %+v, error %v", left, err)
	}
	current, err := n.Store.Read()
	n.check(err)
	if len(current.Slices) != 0 {
		t.Errorf("held: %+v", current.Slices)
	}
	if diff := cmp.Diff(Result{Looked: true}, n.sweep()); diff != "" {
		t.Errorf("swept again (-want +got):\n%s", diff)
	}
}

func TestWhatMayBelongToAJobThatLivesStays(t *testing.T) {
	n := newNode(t)
	n.folder(1, 2, "") // slurmctld says that it runs
	n.holds(1, 2, longAgo)
	n.told.restarts[1] = 2
	n.check(os.MkdirAll(n.Store.Dir.Job(2), 0o755)) // likewise, and whose run the folder is, is not known
	n.old(n.Store.Dir.Job(2))
	n.told.restarts[2] = 5
	n.folder(3, 0, "no room") // it has a step
	n.file(n.Store.Dir.None(4))
	for _, job := range []string{"3", "4"} {
		listener, err := net.Listen("unix", filepath.Join(n.Config.Slurm.SlurmdSpoolDir, "n1_"+job+".4294967292"))
		n.check(err)
		defer listener.Close()
	}
	n.folder(13, 0, "") // slurmctld says nothing
	n.holds(13, 0, longAgo)
	n.folder(14, 0, "no room") // a prolog is at it
	n.check(os.Chtimes(n.Store.Dir.Job(14), time.Now(), time.Now()))
	n.holds(15, 0, time.Now())
	n.file(n.Store.Dir.None(16))
	n.check(os.Chtimes(n.Store.Dir.None(16), time.Now(), time.Now()))
	n.file(filepath.Join(n.Store.Dir.Jobs(), "notes.txt")) // nobody's
	if diff := cmp.Diff(Result{Left: 1, Looked: true}, n.sweep()); diff != "" {
		t.Errorf("swept (-want +got):\n%s", diff)
	}
	n.left("1", "13", "14", "16.none", "2", "3", "4.none", "notes.txt")
	current, err := n.Store.Read()
	n.check(err)
	if len(current.Slices) != 3 {
		t.Errorf("held: %+v", current.Slices)
	}
	slices.Sort(n.told.asked)
	if diff := cmp.Diff([]uint32{1, 2, 13}, n.told.asked); diff != "" {
		t.Errorf("asked about (-want +got):\n%s", diff)
	}
}

// The next run of a job begins between the controller's answer and the lock.
func TestAJobThatBeginsMeanwhileKeepsWhatItHas(t *testing.T) {
	for name, begin := range map[string]func(node){
		"granted": func(n node) {
			n.check(os.RemoveAll(n.Store.Dir.Job(7)))
			n.folder(7, 1, "")
			n.check(os.Chtimes(n.Store.Dir.Job(7), time.Now(), time.Now()))
			n.holds(7, 1, time.Now())
		},
		"the folder is being made": func(n node) {
			n.check(os.RemoveAll(n.Store.Dir.Job(7)))
			n.check(os.Mkdir(n.Store.Dir.Job(7), 0o755))
			n.holds(7, 1, time.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.folder(7, 0, "")
			n.holds(7, 0, longAgo)
			n.told.before = func(uint32) { begin(n) }
			if diff := cmp.Diff(Result{Left: 1, Looked: true}, n.sweep()); diff != "" {
				t.Errorf("swept (-want +got):\n%s", diff)
			}
			n.left("7")
			current, err := n.Store.Read()
			n.check(err)
			if len(current.Slices) != 1 || current.Slices[0].Restart != 1 {
				t.Errorf("held: %+v", current.Slices)
			}
		})
	}
}

// A folder that dcgm-exporter reads may have others' files, too.
func TestTemporariesOfTheJobMapAreTakenAway(t *testing.T) {
	n := newNode(t)
	n.Store.JobMap = t.TempDir()
	for _, name := range []string{".0123456", "0", ".hidden", ".0.prom7"} {
		n.file(filepath.Join(n.Store.JobMap, name))
	}
	n.check(os.WriteFile(filepath.Join(n.Store.JobMap, ".1789"), nil, 0o644)) // somebody writes it now
	if waiting, err := n.Count(context.Background()); err != nil || waiting.Temporaries != 1 {
		t.Errorf("counted %+v, %v", waiting, err)
	}
	if result := n.sweep(); result.Temporaries != 1 {
		t.Errorf("swept %+v", result)
	}
	if diff := cmp.Diff([]string{".0.prom7", ".1789", ".hidden", "0"}, n.names(n.Store.JobMap)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestWhateverWasTakenAwayIsSaid(t *testing.T) {
	for _, result := range []Result{{Slices: 1}, {Folders: 1}, {Marks: 1}, {Temporaries: 1}, {Slices: 1, Folders: 1}, {Folders: 1, Marks: 1}, {Marks: 1, Temporaries: 1}} {
		if !result.Any() || !(Waiting{Slices: result.Slices, Folders: result.Folders, Marks: result.Marks, Temporaries: result.Temporaries}).Any() {
			t.Errorf("%+v is nothing", result)
		}
	}
	if (Result{Left: 1}).Any() || (Waiting{Unknown: 1}).Any() {
		t.Error("a doubt is something")
	}
}

// Where it is not known what lives here, everything may.
func TestWithoutTheStateOrTheStepsNothingIsTakenAway(t *testing.T) {
	for name, spoil := range map[string]func(node) error{
		"state":       func(n node) error { return os.WriteFile(n.Store.Dir.State(), []byte("garbage"), 0o644) },
		"slurmd":      func(n node) error { return os.Remove(n.Config.Slurm.SlurmdSpoolDir) },
		"jobs folder": func(n node) error { return os.WriteFile(n.Store.Dir.Jobs(), nil, 0o644) },
	} {
		n := newNode(t)
		if name == "jobs folder" {
			n.check(os.Remove(n.Store.Dir.Jobs()))
		} else {
			n.folder(1, 0, "no room")
			n.file(n.Store.Dir.None(6))
		}
		n.check(spoil(n))
		if result, err := n.Sweep(context.Background()); err == nil || result != (Result{Looked: result.Looked}) {
			t.Errorf("%s: swept %+v, %v", name, result, err)
		}
		if waiting, err := n.Count(context.Background()); err == nil || waiting.Any() {
			t.Errorf("%s: counted %+v, %v", name, waiting, err)
		}
		if name != "jobs folder" {
			n.left("1", "6.none")
		}
	}
}

func TestWithoutTheLockNothingIsEnded(t *testing.T) {
	for name, leave := range map[string]func(node){
		"1":        func(n node) { n.folder(1, 0, "no room") },
		".1.json1": func(n node) { n.file(filepath.Join(string(n.Store.Dir), ".1.json1")) },
	} {
		n := newNode(t)
		leave(n)
		n.check(os.Mkdir(n.Store.Dir.Lock(), 0o755))
		if result, err := n.Sweep(context.Background()); err == nil || result.Any() {
			t.Errorf("%s: swept %+v, %v", name, result, err)
		}
		if left := append(n.names(n.Store.Dir.Jobs()), n.names(string(n.Store.Dir))...); !slices.Contains(left, name) {
			t.Errorf("%s is gone: %v", name, left)
		}
	}
}

func TestAMarkThatIsRenewedStays(t *testing.T) {
	n := newNode(t)
	n.file(n.Store.Dir.None(7))
	f, err := n.look(n.Sweeper.old)
	n.check(err)
	n.check(os.Chtimes(n.Store.Dir.None(7), time.Now(), time.Now()))
	if removed := removeMarks(f.marks); removed != 0 || len(f.marks) != 1 {
		t.Errorf("%d of %d removed", removed, len(f.marks))
	}
	n.left("7.none")
}

// A prolog meets hundreds of them: it takes a few, oldest first, and the rest waits for the timer.
func TestASweepIsBounded(t *testing.T) {
	n := newNode(t)
	var names []string
	for job := uint32(100); job < 400; job++ {
		n.folder(job, 0, "no room")
		when := longAgo.Add(-time.Duration(job) * time.Second)
		n.check(os.Chtimes(n.Store.Dir.Job(job), when, when))
		if job < 392 {
			names = append(names, fmt.Sprint(job))
		}
	}
	n.Most = 8
	if diff := cmp.Diff(Result{Folders: 8, Left: 292, Recorded: true, Looked: true}, n.sweep()); diff != "" {
		t.Errorf("swept (-want +got):\n%s", diff)
	}
	n.left(names...)
	if len(n.told.asked) != 8 {
		t.Errorf("asked about %d jobs", len(n.told.asked))
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	result, err := n.Sweep(over)
	if err != nil || result.Folders != 0 || result.Left != 292 {
		t.Errorf("without any time: %+v, %v", result, err)
	}
	n.Most = 0
	if result := n.sweep(); result.Folders != 292 {
		t.Errorf("swept %+v", result)
	}
	n.left()
}

func TestOneSweepAtATimeAndNotTooOften(t *testing.T) {
	n := newNode(t)
	n.folder(1, 0, "no room")
	held, err := n.begin()
	n.check(err)
	if result := n.sweep(); result.Any() {
		t.Errorf("swept beside another sweep: %+v", result)
	}
	held.Close()
	n.Every = time.Minute
	if result := n.sweep(); result.Any() {
		t.Errorf("swept again at once: %+v", result)
	}
	n.old(n.Store.Dir.PassLock())
	if result := n.sweep(); result.Folders != 1 {
		t.Errorf("a minute later: %+v", result)
	}
	n.check(os.Remove(n.Store.Dir.PassLock()))
	n.check(os.Mkdir(n.Store.Dir.PassLock(), 0o755))
	if result, err := n.Sweep(context.Background()); err == nil {
		t.Errorf("without a lock: %+v", result)
	}
}
