// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

const (
	lockName = ".lock"
	// MaxHistory is how many reported records are kept.
	MaxHistory = 1000
)

// Outcomes of a report, as they stand in the history.
const (
	OutcomeWritten    = "written to the accounting database"
	OutcomeSuperseded = "not written: a later run of the job is in the accounting database"
	OutcomeDisabled   = "not written: report.enabled is false"
	OutcomeRequeued   = "not written: the job went back into the queue"
)

// Reporter carries usage records from the spool into the accounting database.
type Reporter struct {
	Spool      rundir.Spool
	Accounting Accounting
	RetryFor   time.Duration // a record older than this is given up
	Log        hclog.Logger
	// Retry is the pause after a first unsuccessful try; it doubles up to 64 times of it.
	Retry time.Duration
	// Settle is how long a job on several nodes is given to be overwritten by another node's reporter
	// before its part is looked for again.
	Settle time.Duration
}

// DefaultRetry and DefaultSettle suit a database that was away for seconds, and one that was for hours.
const (
	DefaultRetry  = time.Second
	DefaultSettle = 2 * time.Second
)

// otherRun is how much later than the end of a run another one starts: clocks differ by less, and
// Slurm holds a requeued job back for longer (120 s by default).
const otherRun = time.Minute

// waiting is a record's next try.
type waiting struct {
	next  time.Time
	pause time.Duration
}

// Flush works the spool off: until it is empty, or ctx ends. Another reporter at work: it returns
// at once, since that one takes new records too. Errors are about the spool itself only; what
// becomes of a record stands in the history.
func (r *Reporter) Flush(ctx context.Context) error {
	for {
		unlock, err := r.lock()
		if err != nil || unlock == nil {
			return err
		}
		err = r.work(ctx)
		unlock()
		if err != nil || ctx.Err() != nil {
			return err
		}
		// A record that came after the last look and whose reporter found the lock taken is ours.
		records, bad, err := List(r.Spool)
		if err != nil || len(records)+len(bad) == 0 {
			return err
		}
	}
}

// lock takes the spool's lock; unlock is nil if another reporter has it.
func (r *Reporter) lock() (unlock func(), err error) {
	if err := os.MkdirAll(r.Spool.Usage(), 0o700); err != nil {
		return nil, fmt.Errorf("lock usage spool: %w", err)
	}
	path := filepath.Join(r.Spool.Usage(), lockName)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock usage spool: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	file := os.NewFile(uintptr(fd), path)
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		file.Close()
		return nil, nil
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock usage spool %s: %w", path, err)
	}
	return func() { file.Close() }, nil // never deleted: who waits on a deleted file holds nothing
}

func (r *Reporter) work(ctx context.Context) error {
	removeStaleTemporaries(r.Spool.Usage())
	later := make(map[string]*waiting)
	for {
		records, bad, err := List(r.Spool)
		if err != nil {
			return err
		}
		for _, name := range bad {
			if err := r.setAside(name); err != nil {
				return err
			}
		}
		if len(records) == 0 {
			return nil
		}
		if err := r.round(ctx, records, later); err != nil {
			return err
		}
		if !r.pause(ctx, later) {
			return nil
		}
	}
}

// round tries every record whose turn it is. A database that does not answer ends the round: the
// others would only wait for the same silence.
func (r *Reporter) round(ctx context.Context, records []Record, later map[string]*waiting) error {
	for _, rec := range records {
		if ctx.Err() != nil {
			return nil
		}
		name := fileName(rec.Job, rec.Restart)
		wait := later[name]
		if wait != nil && time.Now().Before(wait.next) {
			continue
		}
		outcome, err := r.report(ctx, rec)
		if err == nil || time.Since(rec.End) > r.RetryFor {
			if err != nil {
				outcome = "given up: " + err.Error()
				r.Log.Error("usage record given up", "job", rec.Job, "restart", rec.Restart, "reason", err)
			}
			delete(later, name)
			if err := r.finish(rec, outcome); err != nil {
				return err
			}
			continue
		}
		if wait == nil {
			wait = &waiting{pause: r.Retry}
			later[name] = wait
		} else {
			wait.pause = min(2*wait.pause, 64*r.Retry)
		}
		wait.next = time.Now().Add(wait.pause)
		r.Log.Info("usage record waits", "job", rec.Job, "restart", rec.Restart, "retry_in", wait.pause, "reason", err)
		if errors.Is(err, ErrDatabase) {
			for _, other := range records {
				name := fileName(other.Job, other.Restart)
				if later[name] == nil {
					later[name] = &waiting{pause: r.Retry}
				}
				if later[name].next.Before(wait.next) {
					later[name].next = wait.next
				}
			}
			return nil
		}
	}
	return nil
}

// pause waits for the next record's turn, but looks for new ones now and then.
func (r *Reporter) pause(ctx context.Context, later map[string]*waiting) bool {
	sleep := 5 * time.Second
	for _, wait := range later {
		sleep = min(sleep, time.Until(wait.next))
	}
	if len(later) == 0 {
		return ctx.Err() == nil
	}
	return sleepFor(ctx, sleep)
}

func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

var (
	errNotEnded  = errors.New("the job has not ended in the accounting database")
	errNotStands = errors.New("another node's report has overwritten this one")
)

// report writes one record's part and reads it back. A nil error means that nothing is left to do.
func (r *Reporter) report(ctx context.Context, rec Record) (outcome string, err error) {
	row, err := r.Accounting.Row(ctx, rec.Job)
	if err != nil {
		return "", err
	}
	switch {
	case row.Start.After(rec.End.Add(otherRun)):
		// The database answers with the newest run only, and that is another one by now.
		return OutcomeSuperseded, nil
	case !row.Ended:
		return "", fmt.Errorf("%w: %s", errNotEnded, row.State)
	}
	if !Stands(row.AdminComment, rec) {
		text, err := Merge(row.AdminComment, rec)
		if errors.Is(err, ErrCommentFull) || errors.Is(err, ErrCommentVersion) {
			return "not written: " + err.Error(), nil
		}
		if err != nil {
			return "", err
		}
		if err := r.Accounting.SetAdminComment(ctx, row, text); err != nil {
			return "", err
		}
		// All nodes of a job end it at the same time, and nothing locks the row between reading and writing.
		if row.Nodes > 1 && r.Settle > 0 && !sleepFor(ctx, r.Settle+rand.N(r.Settle)) {
			return "", ctx.Err()
		}
		if row, err = r.Accounting.Row(ctx, rec.Job); err != nil {
			return "", err
		}
		if !Stands(row.AdminComment, rec) {
			return "", errNotStands
		}
	}
	return OutcomeWritten, nil
}

// finish moves a record into the history.
func (r *Reporter) finish(rec Record, outcome string) error {
	rec.Outcome = outcome
	if err := archive(r.Spool, rec); err != nil {
		return err
	}
	r.Log.Info("usage record reported", "job", rec.Job, "restart", rec.Restart, "outcome", outcome)
	return nil
}

// setAside moves what is no record out of the way, for an admin to look at.
func (r *Reporter) setAside(name string) error {
	if err := os.MkdirAll(r.Spool.History(), 0o700); err != nil {
		return fmt.Errorf("set usage record aside: %w", err)
	}
	to := filepath.Join(r.Spool.History(), name+".bad")
	if err := os.Rename(filepath.Join(r.Spool.Usage(), name), to); err != nil {
		return fmt.Errorf("set usage record aside: %w", err)
	}
	r.Log.Error("file in the usage spool is no record", "moved_to", to)
	return trim(r.Spool)
}

// archive writes a record into the history before it leaves the spool: killed in between, it is
// reported once more, and finds its part standing.
func archive(spool rundir.Spool, rec Record) error {
	if err := os.MkdirAll(spool.History(), 0o700); err != nil {
		return fmt.Errorf("keep usage record: %w", err)
	}
	name := fileName(rec.Job, rec.Restart)
	if err := writeRecord(filepath.Join(spool.History(), name), rec); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(spool.Usage(), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep usage record: %w", err)
	}
	return trim(spool)
}

// Keep puts a record into the history without reporting it: a run that was refused and went back
// into the queue is explained by it, and is none that the accounting database should hear of.
func Keep(spool rundir.Spool, rec Record, outcome string) error {
	rec.Outcome = outcome
	return archive(spool, rec)
}

// trim keeps the newest MaxHistory files of the history.
func trim(spool rundir.Spool) error {
	entries, err := os.ReadDir(spool.History())
	if err != nil {
		return fmt.Errorf("trim usage history: %w", err)
	}
	if len(entries) <= MaxHistory {
		return nil
	}
	type aged struct {
		name string
		when time.Time
	}
	files := make([]aged, 0, len(entries))
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			files = append(files, aged{entry.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b aged) int { return a.when.Compare(b.when) })
	for _, file := range files[:max(len(files)-MaxHistory, 0)] {
		if err := os.RemoveAll(filepath.Join(spool.History(), file.name)); err != nil {
			return fmt.Errorf("trim usage history: %w", err)
		}
	}
	return nil
}

// removeStaleTemporaries clears what a killed writer left. A writer needs milliseconds.
func removeStaleTemporaries(dir string) {
	names, _ := filepath.Glob(filepath.Join(dir, ".*.json*"))
	for _, path := range names {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > time.Hour {
			os.Remove(path)
		}
	}
}

func sortByEnd(records []Record) {
	slices.SortFunc(records, func(a, b Record) int {
		if c := a.End.Compare(b.End); c != 0 {
			return c
		}
		return int(a.Job) - int(b.Job)
	})
}
