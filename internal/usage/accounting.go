// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

// Row is the newest run of a job in the accounting database.
type Row struct {
	Job          uint32
	Cluster      string
	JobID        string // as Slurm prints it: 123, 123_4 of an array, 123+1 of a heterogeneous job
	State        string
	Start        time.Time // zero: not started
	Ended        bool
	Nodes        int
	AdminComment string
}

var (
	// ErrNoRow says that the database does not know the job, perhaps not yet.
	ErrNoRow = errors.New("the accounting database has no such job")
	// ErrDatabase says that the database did not answer: nothing else needs to be tried now.
	ErrDatabase = errors.New("the accounting database does not answer")
	// ErrNoWriter says that a way of writing is not there on this machine.
	ErrNoWriter = errors.New("no usable Slurm library")
)

// Accounting is the accounting database as the reporter uses it.
type Accounting interface {
	Row(ctx context.Context, job uint32) (Row, error)
	SetAdminComment(ctx context.Context, row Row, text string) error
}

// Bounds of one command.
const (
	commandTimeout = 30 * time.Second
	maxOutputBytes = 32 << 20 // an array of 100 000 tasks, each with a comment
)

var errTooMuch = fmt.Errorf("more than %d bytes of output", maxOutputBytes)

// ExitNoWriter is the exit code of the comment writer that has no library to write with.
const ExitNoWriter = 69

// Slurm reaches the database by Slurm's own programs.
type Slurm struct {
	Commands config.Slurm
	// Writer is a command that writes an AdminComment; the job id and the cluster are added to it,
	// the text comes on its standard input. It is another process because Slurm's library ends the
	// process when it does not like its configuration. Empty, or one that exits with ExitNoWriter:
	// sacctmgr writes instead.
	Writer []string
}

// fields is asked of sacct. The first column again at the end shows where a row ends, whatever
// delimiters and line breaks somebody has put into the comment.
const (
	fields    = "Cluster,JobID,JobIDRaw,State,Start,End,NNodes,AdminComment,Cluster"
	delimiter = "\x1f"
	columns   = 9
)

// Row asks sacct. Slurm answers for a whole array if it is asked for the id of its last task
// (the tasks' ids are numbers of their own, but that one is the array's), so the row is picked here.
func (s Slurm) Row(ctx context.Context, job uint32) (Row, error) {
	return s.find(ctx, strconv.FormatUint(uint64(job), 10), func(row Row) bool { return row.Job == job })
}

// Number finds the number of a job that a user names: 123, 123_4 or 123+1. The controller knows the
// jobs of today, the database those of before.
func (s Slurm) Number(ctx context.Context, jobID string) (uint32, error) {
	if number, err := strconv.ParseUint(jobID, 10, 32); err == nil {
		return uint32(number), nil
	}
	out, err := run(ctx, "", s.Commands.Squeue, "--noheader", "--all", "--states=all", "--jobs="+jobID, "--format=%A")
	if number, parseErr := strconv.ParseUint(strings.TrimSpace(out), 10, 32); err == nil && parseErr == nil {
		return uint32(number), nil
	}
	row, err := s.find(ctx, jobID, func(row Row) bool { return row.JobID == jobID })
	return row.Job, err
}

func (s Slurm) find(ctx context.Context, id string, is func(Row) bool) (Row, error) {
	out, err := run(ctx, "", s.Commands.Sacct, "-n", "-P", "-X", "--delimiter="+delimiter, "-j", id, "-o", fields)
	if errors.Is(err, errTooMuch) {
		return Row{}, fmt.Errorf("read job %s from the accounting database: %w", id, err)
	}
	if err != nil {
		return Row{}, fmt.Errorf("read job %s from the accounting database: %w: %w", id, ErrDatabase, err)
	}
	rows, err := parseRows(out)
	if err != nil {
		return Row{}, fmt.Errorf("read job %s from the accounting database: %w", id, err)
	}
	for _, row := range rows {
		if is(row) {
			return row, nil
		}
	}
	return Row{}, fmt.Errorf("read job %s: %w", id, ErrNoRow)
}

// parseRows reads sacct's answer.
func parseRows(out string) ([]Row, error) {
	out = strings.TrimSuffix(out, "\n")
	if out == "" {
		return nil, nil
	}
	tokens := strings.Split(out, delimiter)
	if len(tokens) == 1 || (len(tokens)-1)%(columns-1) != 0 {
		return nil, fmt.Errorf("sacct printed %d columns, want rows of %d", len(tokens), columns)
	}
	var rows []Row
	first := tokens[0]
	for i := 1; i < len(tokens); i += columns - 1 {
		cells := tokens[i : i+columns-1] // JobID … AdminComment, then the end of this row and the start of the next
		end, next, _ := strings.Cut(cells[columns-2], "\n")
		if end != first {
			return nil, fmt.Errorf("sacct printed a row of cluster %q that ends with %q", first, end)
		}
		job, err := strconv.ParseUint(cells[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("sacct printed the job id %q", cells[1])
		}
		nodes, _ := strconv.Atoi(cells[5]) // none for a job that never started
		rows = append(rows, Row{Job: uint32(job), Cluster: first, JobID: cells[0], State: cells[2], Start: epoch(cells[3]),
			Ended: !epoch(cells[4]).IsZero() && hasEnded(cells[2]), Nodes: nodes, AdminComment: cells[6]})
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

// hasEnded is about a state of sacct: "CANCELLED by 0" is one.
func hasEnded(state string) bool {
	for _, live := range []string{"PENDING", "RUNNING", "SUSPENDED", "RESIZING"} {
		if strings.HasPrefix(state, live) {
			return false
		}
	}
	return state != ""
}

// SetAdminComment writes the text into the row.
//
// Seen with Slurm 22.05.8: sacctmgr accepts the text as one argument, with commas, blanks and "=",
// but turns " and ' into ` and everything into lower case; the library call behind it keeps the text.
// The job must be named as sacct prints it, because the id of an array's last task means all of
// its tasks. Both change the newest run only. After a requeue that is the ended run until the next
// one starts. A comment written before the job has ended is lost if slurmctld holds one of its own,
// since that one comes with the job's completion.
func (s Slurm) SetAdminComment(ctx context.Context, row Row, text string) error {
	err := ErrNoWriter
	if len(s.Writer) > 0 {
		_, err = run(ctx, text, s.Writer[0], append(s.Writer[1:len(s.Writer):len(s.Writer)], row.JobID, row.Cluster)...)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == ExitNoWriter {
			err = ErrNoWriter
		}
	}
	if errors.Is(err, ErrNoWriter) {
		// ' would become the same ` as ", and ` looks like one already.
		text = strings.NewReplacer("'", `\u0027`, "`", `\u0060`).Replace(text)
		_, err = run(ctx, "", s.Commands.Sacctmgr, "-i", "modify", "job", "where", "jobid="+row.JobID, "cluster="+row.Cluster,
			"set", "AdminComment="+text)
	}
	if err != nil {
		return fmt.Errorf("write admin comment of job %s: %w", row.JobID, err)
	}
	return nil
}

// run runs one of Slurm's commands in an environment that only says where slurm.conf is.
func run(ctx context.Context, input, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "SLURM_TIME_FORMAT=%s"}
	if conf := os.Getenv("SLURM_CONF"); conf != "" {
		cmd.Env = append(cmd.Env, "SLURM_CONF="+conf)
	}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	var out, errs bytes.Buffer
	cmd.Stdout = &limited{w: &out, left: maxOutputBytes}
	cmd.Stderr = &limited{w: &errs, left: 4096}
	if err := cmd.Run(); err != nil {
		if says := strings.TrimSpace(errs.String()); says != "" {
			return "", fmt.Errorf("%s: %w: %s", path, err, strings.Join(strings.Fields(says), " "))
		}
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if out.Len() == maxOutputBytes {
		return "", fmt.Errorf("%s: %w", path, errTooMuch)
	}
	return out.String(), nil
}

// limited drops what goes beyond its room.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	if _, err := l.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}
