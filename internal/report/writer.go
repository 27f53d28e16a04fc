// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// ExitNoWriter is the exit code of the comment writer that has no library to write with.
const ExitNoWriter = 69

// Order is one line of the writer's standard input: a row, one of its texts as it was read, and the new one.
type Order struct {
	JobID   string    `json:"job_id"`
	Cluster string    `json:"cluster"`
	State   string    `json:"state"`
	Submit  time.Time `json:"submit"`
	End     time.Time `json:"end"`
	Field   Field     `json:"field"`
	Was     string    `json:"was"`
	Text    string    `json:"text"`
}

// Reply is the writer's line about one order, in the same order.
type Reply struct {
	Error   string  `json:"error,omitempty"`
	Changed *string `json:"changed,omitempty"` // what stands there by now
}

// Write changes texts of rows, all of them over one connection.
//
// Seen with Slurm 22.05.8: sacctmgr accepts the text as one argument, with commas, blanks and "=",
// but turns " and ' into ` and everything into lower case; the library call behind it keeps the text.
// The job must be named as sacct prints it, because the id of an array's last task means all of
// its tasks. sacctmgr changes the newest run only, which after a requeue is the ended run until the next
// one starts; the library call can name any. A comment written before the job has ended is lost if slurmctld
// holds one of its own, since that one comes with the job's completion.
func (s Slurm) Write(ctx context.Context, updates []Update) []error {
	errs := make([]error, len(updates))
	if len(s.Writer) > 0 {
		err := s.write(ctx, updates, errs)
		if !errors.Is(err, ErrNoWriter) {
			return errs
		}
	}
	for i, update := range updates {
		errs[i] = s.writeBySacctmgr(ctx, update)
	}
	return errs
}

// write hands the updates to the writer. It may end in the middle: what it has not answered for is not written.
func (s Slurm) write(ctx context.Context, updates []Update, errs []error) error {
	var orders strings.Builder
	enc := json.NewEncoder(&orders)
	for _, u := range updates {
		if err := enc.Encode(Order{JobID: u.Row.JobID, Cluster: u.Row.Cluster, State: u.Row.State, Submit: u.Row.Submit, End: u.Row.End,
			Field: u.Field, Was: u.Row.text(u.Field), Text: u.Text}); err != nil {
			return err
		}
	}
	out, err := run(ctx, orders.String(), s.Writer[0], s.Writer[1:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == ExitNoWriter {
		return ErrNoWriter
	}
	if err == nil {
		err = errors.New("the writer said nothing about it")
	}
	dec := json.NewDecoder(strings.NewReader(out))
	for i, u := range updates {
		var reply Reply
		switch decErr := dec.Decode(&reply); {
		case decErr != nil:
			errs[i] = fmt.Errorf("write %s of job %s: %w", u.Field, u.Row.JobID, err)
		case reply.Changed != nil:
			errs[i] = &ChangedError{Is: *reply.Changed}
		case reply.Error != "":
			errs[i] = errors.New(reply.Error)
		}
	}
	return nil
}

// writeBySacctmgr writes the newest run's row. A run that was requeued has a later one, if not yet in the
// database, then perhaps when sacctmgr looks: such a row is left alone.
func (s Slurm) writeBySacctmgr(ctx context.Context, u Update) error {
	if !u.Newest || requeuedState(u.Row.State) {
		return fmt.Errorf("write %s of job %s: %w", u.Field, u.Row.JobID, ErrOlderRun)
	}
	// ' would become the same ` as ", and ` looks like one already.
	text := strings.NewReplacer("'", `\u0027`, "`", `\u0060`).Replace(u.Text)
	_, err := run(ctx, "", s.Commands.Sacctmgr, "-i", "modify", "job", "where", "jobid="+u.Row.JobID, "cluster="+u.Row.Cluster,
		"set", string(u.Field)+"="+text)
	if err != nil {
		return fmt.Errorf("write %s of job %s: %w", u.Field, u.Row.JobID, err)
	}
	return nil
}

// requeuedState says that another run may follow one that ended so without anybody's asking.
func requeuedState(state string) bool {
	for _, prefix := range []string{"REQUEUED", "PREEMPTED", "NODE_FAIL", "RESIZING", "BOOT_FAIL"} {
		if strings.HasPrefix(state, prefix) {
			return true
		}
	}
	return false
}
