// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// database is an accounting database in memory with the faults of a real one.
type database struct {
	sync.Mutex
	rows   map[uint32]Row
	others []Row                       // of other runs, never to be written
	faults []error                     // of the next calls, whatever they are
	onRow  func(calls int, job uint32) // before an answer, without the lock
	calls  int
	loses  int // so many writes are overwritten by another node's at once
}

func (d *database) fault() error {
	d.calls++
	if len(d.faults) == 0 {
		return nil
	}
	err := d.faults[0]
	d.faults = d.faults[1:]
	return err
}

func (d *database) Rows(_ context.Context, jobs []uint32) (rows []Row, err error) {
	if d.onRow != nil {
		d.onRow(d.calls, jobs[0])
	}
	d.Lock()
	defer d.Unlock()
	if err := d.fault(); err != nil {
		return nil, err
	}
	for _, job := range jobs {
		if row, ok := d.rows[job]; ok {
			rows = append(rows, row)
		}
	}
	return append(rows, d.others...), nil
}

func (d *database) Write(_ context.Context, updates []Update) []error {
	errs := make([]error, len(updates))
	for i, update := range updates {
		errs[i] = d.write(update)
	}
	return errs
}

func (d *database) write(update Update) error {
	d.Lock()
	defer d.Unlock()
	if err := d.fault(); err != nil {
		return err
	}
	have := d.rows[update.Row.Job]
	if !have.Submit.Equal(update.Row.Submit) {
		return errors.New("another run's row was to be written")
	}
	if have.text(update.Field) != update.Row.text(update.Field) {
		return &ChangedError{Is: have.text(update.Field)}
	}
	have.set(update.Field, update.Text)
	if d.loses > 0 {
		d.loses--
		have.AdminComment = `{"vgpu":{"v":1,"nodes":{"n2":[]}}}`
	}
	d.rows[update.Row.Job] = have
	return nil
}

func ended(job uint32) Row {
	return Row{Job: job, Cluster: "c", JobID: fmt.Sprint(job), State: "COMPLETED", Submit: noon.Add(-time.Minute), Start: noon,
		End: noon.Add(time.Hour), Ended: true, Nodes: 1, NodeList: "n[1-2]"}
}

func reporter(t *testing.T, db Accounting) *Reporter {
	t.Helper()
	return &Reporter{
		Spool: rundir.Spool(t.TempDir()), Accounting: db, RetryFor: time.Since(noon) + time.Hour,
		Log: hclog.NewNullLogger(), Retry: time.Millisecond, Settle: time.Millisecond,
	}
}

func flush(t *testing.T, r *Reporter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatal("the spool was not worked off")
	}
}

func outcome(t *testing.T, r *Reporter, job uint32) string {
	t.Helper()
	runs, err := usage.Find(r.Spool, job)
	if err != nil {
		t.Fatal(err)
	}
	return runs[len(runs)-1].Outcome
}

// endsAtTheThirdCall has job 7 end after it was asked for twice.
func endsAtTheThirdCall(t *testing.T) func(*database) func(int, uint32) {
	return func(d *database) func(int, uint32) {
		return func(calls int, _ uint32) {
			d.Lock()
			defer d.Unlock()
			if d.rows[7].AdminComment != "" && calls <= 3 {
				t.Error("written before the job has ended")
			}
			if calls == 3 {
				d.rows[7] = ended(7)
			}
		}
	}
}

func TestFlush(t *testing.T) {
	running := ended(7)
	running.State, running.End, running.Ended = "RUNNING", time.Time{}, false
	later := ended(7)
	later.Submit, later.Start, later.State, later.Ended = noon.Add(time.Hour), noon.Add(2*time.Hour), "RUNNING", false
	many := ended(7)
	many.Nodes = 2
	newer := ended(7)
	newer.AdminComment = `{"vgpu":{"v":9}}`
	down := fmt.Errorf("%w: refused", ErrDatabase)
	for name, tc := range map[string]struct {
		row     Row
		faults  []error
		loses   int
		onRow   func(*database) func(int, uint32)
		outcome string
		stands  bool
	}{
		"at once":                {row: ended(7), outcome: OutcomeWritten, stands: true},
		"slurmdbd down for long": {row: ended(7), faults: []error{down, down, down, down, down}, outcome: OutcomeWritten, stands: true},
		"write refused":          {row: ended(7), faults: []error{nil, errors.New("not now")}, outcome: OutcomeWritten, stands: true},
		"read back fails":        {row: many, faults: []error{nil, nil, down}, outcome: OutcomeWritten, stands: true},
		"another node was quicker": {row: ended(7), faults: []error{nil, &ChangedError{Is: `{"text":"x"}`}, &ChangedError{Is: ""}},
			outcome: OutcomeWritten, stands: true},
		"sacctmgr cannot":   {row: ended(7), faults: []error{nil, ErrOlderRun}, outcome: "not written: " + ErrOlderRun.Error()},
		"overwritten twice": {row: many, loses: 2, outcome: OutcomeWritten, stands: true},
		"no row yet":        {row: ended(7), faults: []error{ErrNoRow, ErrNoRow}, outcome: OutcomeWritten, stands: true},
		"still running":     {row: running, outcome: OutcomeWritten, stands: true, onRow: endsAtTheThirdCall(t)},
		"a later run":       {row: later, outcome: "not written: " + errNever.Error()},
		"newer part": {row: newer,
			outcome: "not written: admin comment was written by a newer version: 9"},
	} {
		t.Run(name, func(t *testing.T) {
			db := &database{rows: map[uint32]Row{7: tc.row}, faults: tc.faults, loses: tc.loses}
			if tc.onRow != nil {
				db.onRow = tc.onRow(db)
			}
			r := reporter(t, db)
			mustWrite(t, r.Spool, sample(7))
			flush(t, r)
			if got := outcome(t, r, 7); got != tc.outcome {
				t.Errorf("outcome %q, want %q", got, tc.outcome)
			}
			if got := Stands(db.rows[7].AdminComment, sample(7)); got != tc.stands {
				t.Errorf("stands: %v, want %v: %s", got, tc.stands, db.rows[7].AdminComment)
			}
			if left := names(t, r.Spool.Usage()); len(left) != 0 {
				t.Errorf("spool holds %v", left)
			}
		})
	}
}

// lateContext writes a record once the reporter has given the spool's lock back, when another one that found it
// taken has gone.
type lateContext struct {
	context.Context
	t    *testing.T
	r    *Reporter
	once *sync.Once
}

func (c lateContext) Err() error {
	if unlock, err := usage.Lock(c.r.Spool); err == nil && unlock != nil {
		unlock()
		c.once.Do(func() { mustWrite(c.t, c.r.Spool, sample(9)) })
	}
	return c.Context.Err()
}

func TestARecordThatComesAtTheEndIsReported(t *testing.T) {
	r := reporter(t, &database{rows: map[uint32]Row{7: ended(7), 9: ended(9)}})
	mustWrite(t, r.Spool, sample(7))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.Flush(lateContext{ctx, t, r, new(sync.Once)}); err != nil {
		t.Fatal(err)
	}
	for _, job := range []uint32{7, 9} {
		if got := outcome(t, r, job); got != OutcomeWritten {
			t.Errorf("job %d: %q", job, got)
		}
	}
}

func TestFlushGivesUpWhatIsTooOld(t *testing.T) {
	db := &database{rows: map[uint32]Row{9: ended(9)}}
	r := reporter(t, db)
	r.RetryFor = time.Minute
	mustWrite(t, r.Spool, sample(7), sample(9))
	flush(t, r)
	if got := outcome(t, r, 7); got != "given up: "+ErrNoRow.Error() {
		t.Errorf("outcome %q", got)
	}
	if got := outcome(t, r, 9); got != OutcomeWritten {
		t.Errorf("an old record that can be written is not: %q", got)
	}
}

// One record whose turn never succeeds must not keep the others waiting.
func TestFlushIsNotHeldUpByOneRecord(t *testing.T) {
	db := &database{rows: make(map[uint32]Row)}
	r := reporter(t, db)
	for job := uint32(1); job <= 20; job++ {
		db.rows[job] = ended(job)
		mustWrite(t, r.Spool, sample(job))
	}
	delete(db.rows, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	db.onRow = func(calls int, _ uint32) {
		if calls > 0 && len(names(t, r.Spool.Usage())) == 1 {
			cancel()
		}
	}
	if err := r.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1.0.json"}, names(t, r.Spool.Usage())); diff != "" {
		t.Error(diff)
	}
}

func TestFlushSetsAsideWhatIsNoRecord(t *testing.T) {
	db := &database{rows: map[uint32]Row{7: ended(7)}}
	r := reporter(t, db)
	mustWrite(t, r.Spool, sample(7))
	if err := os.WriteFile(filepath.Join(r.Spool.Usage(), "3.0.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	flush(t, r)
	if diff := cmp.Diff([]string{"3.0.json.bad", "7.0.json"}, names(t, r.Spool.History())); diff != "" {
		t.Error(diff)
	}
}

// Several reporters at once: one works, the others return, and a record that arrives while the
// first one is about to leave is not forgotten.
func TestFlushTogether(t *testing.T) {
	db := &database{rows: make(map[uint32]Row)}
	r := reporter(t, db)
	for job := uint32(1); job <= 40; job++ {
		db.rows[job] = ended(job)
	}
	var all sync.WaitGroup
	for worker := range uint32(4) {
		all.Go(func() {
			for i := range uint32(10) {
				if err := usage.Write(r.Spool, sample(1+worker*10+i)); err != nil {
					t.Error(err)
				}
				if err := r.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if left := names(t, r.Spool.Usage()); len(left) != 0 {
		t.Errorf("spool holds %v", left)
	}
	for job, row := range db.rows {
		if !Stands(row.AdminComment, sample(job)) {
			t.Errorf("job %d: %q", job, row.AdminComment)
		}
	}
}

func TestFlushLeavesAnotherReporterAlone(t *testing.T) {
	db := &database{rows: map[uint32]Row{7: ended(7)}}
	r := reporter(t, db)
	mustWrite(t, r.Spool, sample(7))
	unlock, err := usage.Lock(r.Spool)
	if err != nil || unlock == nil {
		t.Fatalf("lock: %v", err)
	}
	flush(t, r)
	if db.calls != 0 || len(names(t, r.Spool.Usage())) != 1 {
		t.Errorf("%d calls while another reporter has the lock", db.calls)
	}
	unlock()
	flush(t, r)
	if len(names(t, r.Spool.Usage())) != 0 {
		t.Error("the record still waits")
	}
}

func TestStartReporterDisabledKeepsTheRecords(t *testing.T) {
	for want, change := range map[string]func(*config.Config){
		"not written: report.enabled is false":  func(cfg *config.Config) { cfg.Report.Enabled = false },
		"not written: accounting_field is none": func(cfg *config.Config) { cfg.AccountingField = config.FieldNone },
	} {
		cfg := config.Default()
		cfg.SpoolDir = t.TempDir()
		change(&cfg)
		mustWrite(t, cfg.Spool(), sample(7))
		if err := Start(cfg, "/none"); err != nil {
			t.Fatal(err)
		}
		runs, err := usage.Find(cfg.Spool(), 7)
		if err != nil || len(runs) != 1 || runs[0].Outcome != want {
			t.Errorf("%+v, %v, want %s", runs, err, want)
		}
	}
}

func TestStartReporterSaysWhatIsMissing(t *testing.T) {
	cfg := config.Default()
	cfg.SpoolDir = t.TempDir()
	if err := Start(cfg, "/none"); err == nil || !strings.Contains(err.Error(), "vgpuctl") {
		t.Errorf("got %v", err)
	}
}

// runsDatabase holds several runs of a job.
type runsDatabase struct {
	rows  []Row
	calls [2]int // Rows, Write
}

func (d *runsDatabase) Rows(context.Context, []uint32) ([]Row, error) {
	d.calls[0]++
	return slices.Clone(d.rows), nil
}

func (d *runsDatabase) Write(_ context.Context, updates []Update) []error {
	d.calls[1]++
	for _, update := range updates {
		for i := range d.rows {
			if d.rows[i].Submit.Equal(update.Row.Submit) {
				d.rows[i].AdminComment = update.Text
			}
		}
	}
	return make([]error, len(updates))
}
