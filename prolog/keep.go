// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/builds"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
)

// A package manager puts files into place one after the other. In that time this program is of one build and what it finds
// installed of another: it then starts itself again, as whatever is installed by then.
const (
	againAfter = 250 * time.Millisecond
	againMost  = 60
	againFlag  = "--again"
)

// keep has the job started with copies that no upgrade touches. Where none can be made it is started with what is installed.
func (p *prolog) keep(ctx context.Context, g grant.Grant) (grant.Grant, error) {
	library, err := builds.Find(p.cfg.Run(), p.cfg.Library)
	if errors.Is(err, fs.ErrNotExist) {
		library, err = p.keepNew(ctx)
	}
	switch {
	case errors.Is(err, builds.ErrMixed):
		return g, p.startAgain(err)
	case err != nil:
		p.log.Warn("the job is started with the installed library, and an upgrade would change it for its later processes", "reason", err)
	default:
		g.Library = library
	}
	return g, nil
}

func (p *prolog) keepNew(ctx context.Context) (string, error) {
	tx, err := p.begin(ctx)
	if err != nil {
		return "", err
	}
	defer tx.End()
	library, err := builds.Keep(p.cfg.Run(), p.cfg.Library)
	if errors.Is(err, unix.ENOSPC) {
		if _, err := builds.Sweep(p.cfg.Run(), p.cfg.Library); err != nil {
			return "", err
		}
		library, err = builds.Keep(p.cfg.Run(), p.cfg.Library)
	}
	if err == nil {
		p.log.Info("a build is kept for the jobs that are started with it", "library", library)
	}
	return library, err
}

// startAgain returns only where it cannot, or has done so often enough.
func (p *prolog) startAgain(reason error) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("%w: %w", reason, err)
	}
	if p.opts.again >= againMost {
		return fmt.Errorf("an upgrade of slurm-vgpu on this node is not complete: %w", reason)
	}
	time.Sleep(againAfter)
	p.log.Debug("the prolog starts again", "reason", reason)
	args := append([]string{os.Args[0], againFlag, strconv.Itoa(p.opts.again + 1)}, arguments()...)
	return fmt.Errorf("%w: %w", reason, syscall.Exec(program, args, os.Environ())) //nolint:forbidigo // slurmd's own, for the same program
}

// arguments are those that slurmd gave.
func arguments() []string {
	if len(os.Args) > 2 && os.Args[1] == againFlag {
		return os.Args[3:]
	}
	return os.Args[1:]
}
