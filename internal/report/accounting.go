// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/words"
)

// Row is one run of a job in the accounting database.
type Row struct {
	Job          uint32
	Cluster      string
	JobID        string // as Slurm prints it: 123, 123_4 of an array, 123+1 of a heterogeneous job
	State        string
	ExitCode     string // CODE:SIGNAL
	Account      string
	TimeLimit    time.Duration // 0: none, or not known
	Submit       time.Time     // a requeued run counts as submitted when the one before it had ended
	Start        time.Time     // zero: not started
	End          time.Time
	Ended        bool
	Nodes        int
	NodeList     string
	AdminComment string
	Extra        string
	HasExtra     bool // this release of Slurm has the field
}

var (
	// ErrNoRow says that the database does not know the job, perhaps not yet.
	ErrNoRow = errors.New("the accounting database has no such job")
	// ErrDatabase says that the database did not answer: nothing else needs to be tried now.
	ErrDatabase = errors.New("the accounting database does not answer")
	// ErrNoWriter says that a way of writing is not there on this machine.
	ErrNoWriter = errors.New("no usable Slurm library")
	// ErrOlderRun says that only the newest run of a job can be written here, and this row is not that for sure.
	ErrOlderRun = errors.New("without Slurm's library only a job's last run can be written")
)

// Update is a change of one text of a row.
type Update struct {
	Row    Row // as it was read
	Newest bool
	Field  Field
	Text   string
}

// Accounting is the accounting database as the reporter uses it.
type Accounting interface {
	// Rows returns all runs of these jobs.
	Rows(ctx context.Context, jobs []uint32) ([]Row, error)
	// Write returns one error for each update. A ChangedError says what stands there by now.
	Write(ctx context.Context, updates []Update) []error
}

// ChangedError says that the field's text is another one than that which was read.
type ChangedError struct{ Is string }

func (e *ChangedError) Error() string { return "it was changed meanwhile" }

// Bounds of one command.
const (
	commandTimeout = 30 * time.Second
	maxOutputBytes = 32 << 20 // an array of 100 000 tasks, each with a comment
)

var errTooMuch = fmt.Errorf("more than %d bytes of output", maxOutputBytes)

// Slurm reaches the database by Slurm's own programs.
type Slurm struct {
	Commands config.Slurm
	// Writer is a command that changes texts of rows over one connection (writer.go). It is another process
	// because Slurm's library ends the process when it does not like its configuration. Empty, or one that exits
	// with ExitNoWriter: sacctmgr writes instead.
	Writer []string
	// Extra says that sacct has the column of that name, which is so from 23.02 on.
	Extra bool
}

// columns are asked of sacct. The first one again at the end shows where a row ends, whatever line breaks somebody
// has put into a text.
func (s Slurm) columns() []string {
	names := []string{"Cluster", "JobID", "JobIDRaw", "State", "ExitCode", "Account", "TimelimitRaw", "Submit", "Start", "End", "NNodes", "NodeList", "AdminComment"}
	if s.Extra {
		names = append(names, "Extra")
	}
	return append(names, "Cluster")
}

// delimiter is another one for each question: whoever fills Extra of his job cannot know it, and so imitate no column.
func delimiter() string { return "\x1f" + rand.Text() + "\x1f" }

// Rows asks sacct once. Slurm answers for a whole array if it is asked for the id of its last task
// (the tasks' ids are numbers of their own, but that one is the array's), so the rows are picked here.
func (s Slurm) Rows(ctx context.Context, jobs []uint32) ([]Row, error) {
	var ids []string
	for _, job := range jobs {
		ids = append(ids, strconv.FormatUint(uint64(job), 10))
	}
	rows, err := s.ask(ctx, strings.Join(ids, ","))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(rows, func(row Row) bool { return !slices.Contains(jobs, row.Job) }), nil
}

// Row is the newest run of a job.
func (s Slurm) Row(ctx context.Context, job uint32) (Row, error) {
	rows, err := s.Rows(ctx, []uint32{job})
	if err != nil {
		return Row{}, err
	}
	if len(rows) == 0 {
		return Row{}, fmt.Errorf("read job %d: %w", job, ErrNoRow)
	}
	return newest(rows), nil
}

func newest(rows []Row) Row {
	return slices.MaxFunc(rows, func(a, b Row) int { return a.Submit.Compare(b.Submit) })
}

// Number finds the number of a job that a user names: 123, 123_4 or 123+1. The controller has the
// jobs of today, the database those of before.
func (s Slurm) Number(ctx context.Context, jobID string) (uint32, error) {
	if number, err := strconv.ParseUint(jobID, 10, 32); err == nil {
		return uint32(number), nil
	}
	out, err := run(ctx, "", s.Commands.Squeue, "--noheader", "--all", "--states=all", "--jobs="+jobID, "--format=%A")
	if number, parseErr := strconv.ParseUint(strings.TrimSpace(out), 10, 32); err == nil && parseErr == nil {
		return uint32(number), nil
	}
	rows, err := s.ask(ctx, jobID)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if row.JobID == jobID {
			return row.Job, nil
		}
	}
	return 0, fmt.Errorf("read job %s: %w", jobID, ErrNoRow)
}

// ask asks sacct for all runs (-D) of some jobs, without their steps.
func (s Slurm) ask(ctx context.Context, ids string) ([]Row, error) {
	between := delimiter()
	out, err := run(ctx, "", s.Commands.Sacct, "-D", "-n", "-P", "-X", "--delimiter="+between, "-j", ids, "-o", strings.Join(s.columns(), ","))
	if errors.Is(err, errTooMuch) {
		return nil, fmt.Errorf("read jobs %s from the accounting database: %w", ids, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read jobs %s from the accounting database: %w: %w", ids, ErrDatabase, err)
	}
	rows, err := parseRows(out, between, s.Extra)
	if err != nil {
		return nil, fmt.Errorf("read jobs %s from the accounting database: %w", ids, err)
	}
	return rows, nil
}

// parseRows reads sacct's answer.
func parseRows(out, delimiter string, extra bool) ([]Row, error) {
	out = strings.TrimSuffix(out, "\n")
	if out == "" {
		return nil, nil
	}
	columns := len(Slurm{Extra: extra}.columns())
	tokens := strings.Split(out, delimiter)
	if len(tokens) == 1 || (len(tokens)-1)%(columns-1) != 0 {
		return nil, fmt.Errorf("sacct printed %d columns, want rows of %d", len(tokens), columns)
	}
	var rows []Row
	first := tokens[0]
	for i := 1; i < len(tokens); i += columns - 1 {
		cells := tokens[i : i+columns-1] // JobID … the last text, then the end of this row and the start of the next
		end, next, _ := strings.Cut(cells[columns-2], "\n")
		if end != first {
			return nil, fmt.Errorf("sacct printed a row of cluster %q that ends with %q", first, end)
		}
		job, err := strconv.ParseUint(cells[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("sacct printed the job id %q", cells[1])
		}
		nodes, _ := strconv.Atoi(cells[9]) // none for a job that never started
		ended := epoch(cells[8])
		row := Row{Job: uint32(job), Cluster: first, JobID: cells[0], State: slurm.Printable(cells[2]), ExitCode: slurm.Printable(cells[3]),
			Account: slurm.Printable(cells[4]), TimeLimit: minutes(cells[5]), Submit: epoch(cells[6]),
			Start: epoch(cells[7]), End: ended, Ended: !ended.IsZero() && hasEnded(cells[2]), Nodes: nodes, NodeList: slurm.Printable(cells[10]),
			AdminComment: cells[11], HasExtra: extra}
		if extra {
			row.Extra = cells[12]
		}
		rows = append(rows, row)
		first = next
	}
	return rows, nil
}

// epoch reads a time printed with SLURM_TIME_FORMAT=%s; "Unknown" and "None" are the zero time.
func epoch(text string) time.Time {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// mostMinutes is more than Slurm's longest time limit.
const mostMinutes = math.MaxUint32

// minutes reads a time limit; UNLIMITED and Partition_Limit are none.
func minutes(text string) time.Duration {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > mostMinutes {
		return 0
	}
	return time.Duration(n) * time.Minute
}

// hasEnded is about a state of sacct: "CANCELLED by 0" is one.
func hasEnded(state string) bool {
	for _, live := range []string{"PENDING", "RUNNING", "SUSPENDED", "RESIZING"} {
		if strings.HasPrefix(state, live) {
			return false
		}
	}
	return state != ""
}

// run runs one of Slurm's commands in an environment that only says where slurm.conf is.
func run(ctx context.Context, input, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "SLURM_TIME_FORMAT=%s"}
	if conf := os.Getenv("SLURM_CONF"); conf != "" { //nolint:forbidigo // which Slurm is asked
		cmd.Env = append(cmd.Env, "SLURM_CONF="+conf)
	}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	out, errs := words.First{Most: maxOutputBytes}, words.First{Most: 4 << 10}
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if says := errs.Line(); says != "" {
			return out.String(), fmt.Errorf("%s: %w: %s", path, err, says)
		}
		return out.String(), fmt.Errorf("%s: %w", path, err)
	}
	if out.Over() {
		return "", fmt.Errorf("%s: %w", path, errTooMuch)
	}
	return out.String(), nil
}
