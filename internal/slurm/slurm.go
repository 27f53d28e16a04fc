// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package slurm asks the controller about jobs, through Slurm's own commands.
//
// The text that scontrol prints holds what users wrote (job name, comment, paths), with blanks
// and line ends as they are. A user can thus imitate any part of it, but never take the true part
// away: so every field that is read is one that Slurm always prints, and stands exactly once in
// the part that it is read from, whose bounds stand exactly once too. Else the answer is
// ErrAmbiguous. Fields that Slurm prints only for some jobs are queried in another way. There is no such
// text in JSON, but the controllers of 22.05 cannot be asked for it, and where they can it takes
// twice the time.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// invalidJob is how Slurm's commands say that there is no such job (any more).
const invalidJob = "Invalid job id specified"

var (
	// ErrUnknownJob means that the controller answered, and knows no such job.
	ErrUnknownJob = errors.New("the controller has no such job")
	// ErrAmbiguous means that the job's name, comment or paths imitate scontrol's output.
	ErrAmbiguous = errors.New("a text of the job's owner imitates scontrol's output")
	// ErrNoDetail means that the answer does not say what the job was allocated.
	ErrNoDetail = errors.New("the controller does not say what the job was allocated")
	// ErrContradiction means that a job that has to do with vgpu would come out with nothing.
	ErrContradiction = errors.New("request and allocation of the job do not fit each other")
)

// Client asks the controller of the cluster that SLURM_CONF names.
type Client struct {
	Scontrol string        // absolute path
	Squeue   string        // absolute path
	Scancel  string        // absolute path; for who cancels
	Timeout  time.Duration // all tries of one question together
	Node     string        // this one, where slurmd itself has said its name; "": not known for sure
}

// Job asks for one job, again and again until the timeout while the controller does not answer.
func (c Client) Job(ctx context.Context, id uint32) (Job, error) {
	var job Job
	err := retry(ctx, c.Timeout, func(ctx context.Context) (err error) {
		job, err = c.askJob(ctx, id)
		if err == nil && job.Exclusive {
			job.asked, job.gpus, err = c.asked(ctx, id)
		}
		return err
	})
	if err != nil {
		return Job{}, fmt.Errorf("ask for job %d: %w", id, err)
	}
	return job, nil
}

// Finished says that a run of a job is over, here at least: one with --no-kill that has lost this node goes on without it.
// A job that the controller has forgotten is over; a job with an answer that cannot be trusted is not. It asks once.
func (c Client) Finished(ctx context.Context, id uint32, restart int) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	job, err := c.askJob(ctx, id)
	switch {
	case errors.Is(err, ErrUnknownJob):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("ask for job %d: %w", id, err)
	}
	return job.Finished(restart) || c.Node != "" && job.Runs() && !job.On(c.Node), nil
}

func (c Client) askJob(ctx context.Context, id uint32) (Job, error) {
	spec := strconv.FormatUint(uint64(id), 10)
	text, err := c.show(ctx, spec)
	if err != nil {
		return Job{}, err
	}
	if countRecords(text) != 1 {
		// An array task or heterogeneous component that bears the id of the whole: its siblings are
		// printed as well. Or somebody imitates records; the narrower question will tell.
		if spec, err = c.preciseID(ctx, id); err != nil {
			return Job{}, err
		}
		if text, err = c.show(ctx, spec); err != nil {
			return Job{}, err
		}
	}
	return parseJob(text, id)
}

// Knows says whether the controller has the job still. Of an array it shows each task; an answer that is too long to read means yes.
func (c Client) Knows(ctx context.Context, id uint32) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	_, err := c.show(ctx, strconv.FormatUint(uint64(id), 10))
	switch {
	case errors.Is(err, ErrUnknownJob):
		return false, nil
	case errors.Is(err, ErrTooMuch):
		return true, nil
	}
	return err == nil, err
}

func (c Client) show(ctx context.Context, spec string) (string, error) {
	return run(ctx, c.Scontrol, "-d", "-o", "show", "job", spec)
}

// preciseID finds how scontrol names this one job: "8_3" or "12+0". No text of a user is printed here.
func (c Client) preciseID(ctx context.Context, id uint32) (string, error) {
	plain := strconv.FormatUint(uint64(id), 10)
	text, err := run(ctx, c.Squeue, "--noheader", "--all", "--states=all", "--jobs="+plain, "--format=%A %i")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == plain && strings.Trim(fields[1], "0123456789_+") == "" {
			return fields[1], nil
		}
	}
	return "", ErrUnknownJob
}

// unreachable recognises how Slurm's commands say that nobody answered them.
func unreachable(err error) bool {
	for _, text := range []string{"Unable to contact", "onnection", "timed out", "ocket", "ransport"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}
