// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	inst "github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/keeper"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/words"
)

// chore is a command of vgpuctl's that the supervisor runs from time to time, beside the shares: it is a process of its own, with less of the processor
// and fewer rights, and the supervisor does not wait for it.
type chore struct {
	args   []string
	each   time.Duration // while slices are on the node
	atRest time.Duration // while none is; 0: never
	most   time.Duration // that it may take; 0: as long as it likes
	// afterJobs: soon after each end of a job's as well.
	afterJobs bool
	may       []int // of root's capabilities
	// isNeeded is asked when the time has come; nil: it is.
	isNeeded func(n node, empty bool, since time.Duration) bool
}

// Of root, because ledgers and processes of all users are read.
var mayRead = []int{unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PTRACE}

// isSwept: an empty node has something to do at once only while jobs wait for it, or it has taken itself out of Slurm's hands.
func isSwept(n node, empty bool, since time.Duration) bool {
	if !empty || since >= emptyEach {
		return true
	}
	return slices.ContainsFunc([]string{n.cfg.Spool().Waiting(), n.cfg.Spool().Drained()}, func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	})
}

// hasRecords: the epilog starts a reporter for each job, and this is for what one of them left behind, or slurmctld may have written over.
func hasRecords(n node, _ bool, _ time.Duration) bool {
	return slices.ContainsFunc([]string{n.cfg.Spool().Usage(), n.cfg.Spool().Backfill()}, func(folder string) bool {
		entries, err := os.ReadDir(folder)
		return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), ".") })
	})
}

// chores are those that run beside one supervisor.
type chores struct {
	all   []*running
	empty bool // no slice is on the node
}

type running struct {
	chore
	n     node
	empty chan bool     // what changed last
	soon  chan struct{} // a job has ended
	says  string        // the last failure, which the log has
}

func beginChores(n node) *chores {
	c := &chores{empty: true}
	for _, one := range allChores {
		r := &running{chore: one, n: n, empty: make(chan bool, 1), soon: make(chan struct{}, 1)}
		c.all = append(c.all, r)
		go r.goOn()
	}
	return c
}

// hear takes the worker's words. Only the supervisor's loop calls it.
func (c *chores) hear(doing keeper.Doing) {
	if doing == keeper.JobEnded {
		for _, r := range c.all {
			if r.afterJobs {
				select {
				case r.soon <- struct{}{}:
				default: // it will look after now anyway
				}
			}
		}
		return
	}
	empty := doing == keeper.Empty
	if c.empty == empty {
		return
	}
	c.empty = empty
	for _, r := range c.all {
		select {
		case <-r.empty: // older news
		default:
		}
		r.empty <- empty
	}
}

// goOn never returns. It stays on one thread, whose place and rights its children have; they end with that thread, that is with vgpud.
func (r *running) goOn() {
	runtime.LockOSThread()
	if err := lower(r.may); err != nil {
		r.n.log.Error("vgpud does not run what it should from time to time", "command", r.args[0], "reason", err)
		r.mark(err)
		return
	}
	empty, last := true, time.Now()
	jobEnded := false
	due := time.Time{} // never
	sooner := func(in time.Duration) {
		if at := time.Now().Add(in); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	if r.atRest > 0 {
		sooner(spread(r.atRest))
	}
	for {
		var comes <-chan time.Time
		if !due.IsZero() {
			comes = time.After(time.Until(due))
		}
		select {
		case empty = <-r.empty:
			if !empty {
				sooner(spread(r.each))
			}
			continue
		case <-r.soon:
			jobEnded = true
			sooner(soonAfter)
			continue
		case <-comes:
		}
		if since := time.Since(last); jobEnded || r.isNeeded == nil || r.isNeeded(r.n, empty, since) {
			jobEnded, last = false, time.Now()
			r.note(r.do())
		} else {
			r.mark(nil)
		}
		if due = (time.Time{}); !empty {
			sooner(r.each)
		} else if r.atRest > 0 {
			sooner(r.atRest)
		}
	}
}

// spread is a part of a time: the nodes of a cluster boot together, and have one controller and one database.
func spread(each time.Duration) time.Duration { return each/spreadPart + rand.N(each/spreadPart) }

// lower gives this thread, and the commands that it starts, less of the processor than jobs have, and no more rights than these.
func lower(may []int) error {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, lastPriority)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil { // or root has all rights again in each program (capabilities(7))
		return fmt.Errorf("give up rights: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has, keeps [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return fmt.Errorf("give up rights: %w", err)
	}
	for _, capability := range may {
		word, bit := capability/32, uint32(1)<<(capability%32)
		keeps[word].Permitted |= has[word].Permitted & bit
		keeps[word].Effective |= has[word].Permitted & bit
	}
	if err := unix.Capset(&header, &keeps[0]); err != nil {
		return fmt.Errorf("give up rights: %w", err)
	}
	return nil
}

// do runs the command once. A command that the kernel cannot end holds up no other.
func (r *running) do() error {
	program, err := inst.Find("vgpuctl")
	if err != nil {
		return err
	}
	says := words.First{Most: mostWords}
	ctx, cancel := context.Background(), func() {}
	if r.most > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, r.most, errors.New("it took too long"))
	}
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append(slices.Clone(r.args), "--config", r.n.configPath)...)
	cmd.Stderr, cmd.Env, cmd.Dir, cmd.WaitDelay = &says, environment(), "/", lateWords
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	cmd.Cancel = func() error { // the log has it also where the kernel cannot end the command
		r.n.log.Error("a command that vgpud runs from time to time takes too long, and is ended", "command", r.args[0], "seconds", r.most.Seconds())
		return unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// The kernel is to end vgpud last, and its commands like any program.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("0"), 0)
	if err := cmd.Wait(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(cause, err)
		}
		return fmt.Errorf("%w: %s", err, says.Line())
	}
	return nil
}

// note has the log say when a command begins to fail, and when it does not any more: one of them runs every ten seconds.
func (r *running) note(err error) {
	says := ""
	if err != nil {
		says = err.Error()
	}
	switch {
	case says == r.says:
	case err != nil:
		r.n.log.Error("a command that vgpud runs from time to time has failed", "command", r.args[0], "reason", says)
	default:
		r.n.log.Info("a command that vgpud runs from time to time works again", "command", r.args[0])
	}
	r.says = says
	r.mark(err)
}

// mark is for doctor, which says since when a command fails.
func (r *running) mark(err error) {
	path := r.n.cfg.Run().VgpudFailed(r.args[0])
	if err == nil {
		_ = os.Remove(path)
	} else if _, missing := os.Lstat(path); missing != nil {
		_ = trusted.WriteFile(path, nil, 0o644)
	}
}
