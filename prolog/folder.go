// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pages"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// makeFolder makes jobs/ID. grant.json comes last: nobody looks at a folder without it, so that
// one that is found without it is what a killed prolog left, or an epilog that was about to end.
func (p *prolog) makeFolder(g grant.Grant) error {
	if err := p.prepareFolder(g); err != nil {
		return err
	}
	return p.writeGrant(g)
}

// isMade says that an earlier prolog of this run has made the folder.
func (p *prolog) isMade(g grant.Grant) bool {
	before, ok := p.previous(g)
	return ok && before.Refusal == g.Refusal
}

// prepareFolder makes all of a job's folders and pages but the grant.
func (p *prolog) prepareFolder(g grant.Grant) error {
	if p.isMade(g) {
		return nil
	}
	dir := p.cfg.Run()
	if err := os.RemoveAll(dir.Job(g.Job)); err != nil {
		return fmt.Errorf("make job folder: %w", err)
	}
	folders := []string{dir.Job(g.Job)}
	if g.Refusal == "" {
		folders = append(folders, filepath.Dir(dir.Step(g.Job, "any")))
	}
	for _, folder := range folders {
		if err := os.Mkdir(folder, 0o755); err != nil {
			return fmt.Errorf("make job folder: %w", err)
		}
		if err := os.Chmod(folder, 0o755); err != nil { // slurmd's umask must not shut the job out
			return fmt.Errorf("make job folder: %w", err)
		}
	}
	crashpoint.At("prolog/folder-made")
	if g.Refusal != "" || g.Whole {
		return nil
	}
	mounted, err := pages.Make(dir.Pages(g.Job))
	if err != nil {
		return fmt.Errorf("make job folder: %w", err)
	}
	if !mounted {
		p.log.Warn("no file system can be mounted for the job's user: his pages may fill the run directory")
	}
	return makePages(dir, g)
}

func (p *prolog) writeGrant(g grant.Grant) error {
	if !p.isMade(g) {
		if err := grant.Write(p.cfg.Run().Grant(g.Job), g); err != nil {
			return err
		}
	}
	return removeFile(p.cfg.Run().None(g.Job))
}

// makePages makes the files of the job's folder of pages.
func makePages(dir rundir.Dir, g grant.Grant) error {
	if err := ledger.Create(dir.Ledger(g.Job), g.Job, len(g.Slices), g.UID, g.GID); err != nil {
		return err
	}
	crashpoint.At("prolog/ledger-made")
	if err := ledger.CreateGroups(dir.Groups(g.Job), g.Job, g.UID, g.GID); err != nil {
		return err
	}
	err := ledger.CreateTime(dir.Time(g.Job), g.Job, len(g.Slices))
	crashpoint.At("prolog/pages-made")
	return err
}

// shutPages makes the folder of the jobs' pages a mount, before any process of a job is there that could make that fail.
func (p *prolog) shutPages(ctx context.Context) {
	folder := p.cfg.Run().AllPages()
	if pages.IsShut(folder) {
		return
	}
	tx, err := p.begin(ctx)
	if err == nil {
		defer tx.End()
		err = pages.Shut(folder)
	}
	if err != nil { // whoever places a job tries again, and says so
		p.log.Debug("the folder of the jobs' pages is no mount yet", "reason", err)
	}
}

// begun tells steps that come early that this prolog is at work.
func (p *prolog) begun() error {
	return touch(p.cfg.Run().Pending(p.job.id))
}

// leaveCommand tells the plugin how to run this prolog again.
func (p *prolog) leaveCommand() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	command := grant.PrologCommand{Argv: append([]string{program}, arguments()...), Env: []string{}}
	for _, name := range []string{"SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURMD_NODENAME"} {
		if value := os.Getenv(name); value != "" {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	return grant.WriteProlog(p.cfg.Run().Prolog(), command)
}

// leaveNotice has the plugin put what is wrong with the configuration into slurmd's log, with each job: what a prolog says that ends well
// is nowhere to be read.
func (p *prolog) leaveNotice() error {
	if p.notice == "" {
		return removeFile(p.cfg.Run().Notice())
	}
	return trusted.WriteFile(p.cfg.Run().Notice(), []byte(p.notice+"\n"), 0o644)
}

func (p *prolog) ended() {
	if err := removeFile(p.cfg.Run().Pending(p.job.id)); err != nil {
		p.log.Warn("a mark stays that this prolog is at work", "reason", err)
	}
}

// touch leaves an empty file. O_TRUNC makes its time that of now also where an earlier run left one.
func touch(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// recordRefusal replaces what stands in the job's folder, under the lock: an epilog may be at it.
func (p *prolog) recordRefusal(ctx context.Context, g grant.Grant) error {
	tx, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	// A prolog of this run may have got so far as to take slices.
	tx.Drop(func(run state.Run) bool { return run == (state.Run{Job: g.Job, Restart: g.Restart}) })
	if err := p.makeFolder(g); err != nil {
		return err
	}
	p.gpus.Refused()
	return tx.Commit()
}

// rewriteRefusal marks a refusal as requeued. The epilog may have been quicker: then there is
// nothing left to mark.
func (p *prolog) rewriteRefusal(ctx context.Context, g grant.Grant) error {
	tx, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	if _, ok := p.previous(g); !ok {
		return tx.Commit()
	}
	if err := grant.Write(p.cfg.Run().Grant(g.Job), g); err != nil {
		return err
	}
	return tx.Commit()
}

// prepareIsolation makes what the plugin will bind a task's own files over.
func (p *prolog) prepareIsolation() error {
	if !p.cfg.IsStrict() {
		return nil
	}
	if err := os.MkdirAll(p.opts.selfDir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(p.opts.selfDir, 0o755); err != nil {
		return err
	}
	if _, err := os.Lstat(p.opts.preloadFile); err == nil {
		return nil
	}
	fd, err := unix.Open(p.opts.preloadFile, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "create", Path: p.opts.preloadFile, Err: err}
	}
	err = unix.Fchmod(fd, 0o644)
	return errors.Join(err, unix.Close(fd))
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
