// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/words"
)

const (
	// maxOutputBytes bounds a command's answer: a job of ten thousand nodes needs about 1 MiB.
	maxOutputBytes = 16 << 20
	maxStderrBytes = 4 << 10
	// killWait is how long pipes of a killed command may stay open.
	killWait = time.Second
)

// ErrTooMuch is wrapped when a command printed more than any true answer has.
var ErrTooMuch = errors.New("answer is too long")

// run starts one of Slurm's commands by its absolute path, with an environment of our own.
func run(ctx context.Context, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environment()
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killWait
	stdout, stderr := &words.First{Most: maxOutputBytes}, &words.First{Most: maxStderrBytes}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	said := stderr.Line()
	switch {
	case err != nil && ctx.Err() != nil:
		return "", fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), ctx.Err())
	case err != nil && strings.Contains(said, invalidJob):
		return "", fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), ErrUnknownJob)
	case err != nil:
		return "", fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, said)
	case stdout.Over():
		return "", fmt.Errorf("%s %s: %w: more than %d bytes", path, strings.Join(args, " "), ErrTooMuch, maxOutputBytes)
	}
	return stdout.String(), nil
}

// environment is all that Slurm's commands get: a variable like SQUEUE_FORMAT or SLURM_CLUSTERS of
// whoever runs us would change what they print or whom they ask.
func environment() []string {
	env := []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C", "SLURM_TIME_FORMAT=%s"}
	if conf := os.Getenv("SLURM_CONF"); conf != "" { //nolint:forbidigo // which Slurm is asked
		env = append(env, "SLURM_CONF="+conf)
	}
	return env
}

// retry calls ask until it succeeds, says something that another try cannot change, or the time is over.
func retry(ctx context.Context, timeout time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		attempt, done := context.WithTimeout(ctx, attemptTime)
		err := ask(attempt)
		done()
		if err == nil || final(err) {
			return err
		}
		if last == nil || ctx.Err() == nil { // what was wrong says more than that time was over
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(pause):
		}
	}
}

// errRefused marks what the controller answered and another try does not change.
var errRefused = errors.New("the controller refuses it")

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// attemptTime is longer than Slurm's own MessageTimeout usually is.
	attemptTime = 20 * time.Second
)

func final(err error) bool {
	return errors.Is(err, errRefused) || errors.Is(err, ErrUnknownJob) || errors.Is(err, ErrAmbiguous) || errors.Is(err, ErrContradiction) || errors.Is(err, ErrTooMuch) ||
		errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission)
}
