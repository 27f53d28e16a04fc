// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// vgpud keeps the shares of GPU time of a node. It is two processes: the worker keeps them, and
// the supervisor, which began it, undoes what holds programs when the worker is gone.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/keeper"
	"github.com/slurm-vgpu/slurm-vgpu/internal/logging"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const usage = `usage: vgpud [--config FILE] [run|release]
run (also without a word) keeps the shares of GPU time on this node; release undoes what a vgpud that is gone has left off or frozen.
`

func main() { os.Exit(command(os.Args[1:])) }

func command(args []string) int {
	flags := pflag.NewFlagSet("vgpud", pflag.ContinueOnError)
	flags.Usage = func() { fmt.Print(usage) }
	configPath := flags.String("config", config.DefaultPath, "configuration file")
	byProlog := flags.Bool("by-prolog", false, "another one is no fault: prologs of jobs that start together each begin one")
	if err := flags.MarkHidden("by-prolog"); err != nil {
		panic(err) // a flag named here is not one of those above
	}
	showVersion := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return exitOK
		}
		fmt.Fprintln(os.Stderr, "vgpud:", err)
		return exitUsage
	}
	if *showVersion {
		fmt.Println("vgpud", version.Number)
		return exitOK
	}
	word := "run"
	if flags.NArg() > 0 {
		word = flags.Arg(0)
	}
	does, known := map[string]func(node) int{"run": run, "release": release, workerWord: work}[word]
	if !known || flags.NArg() > 1 {
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	n, closeLog, err := here(*configPath)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vgpud:", err)
		return exitFailed
	}
	defer closeLog()
	n.byProlog = *byProlog
	favour()
	return does(n)
}

// node is where vgpud runs.
type node struct {
	configPath string
	cfg        config.Config
	store      state.Store
	log        hclog.Logger
	byProlog   bool // began it
}

func here(configPath string) (node, func(), error) {
	held := config.LoadHeld(configPath)
	cfg := held.Config.ForNode(config.NodeName())
	log, closer, err := logging.New("vgpud", cfg.Log)
	if err != nil {
		log.Error("the log goes to stderr", "reason", err)
	}
	complain(log, held)
	bootID, err := inventory.BootID()
	if err != nil {
		closer.Close()
		return node{}, nil, err
	}
	return node{configPath: configPath, cfg: cfg, store: state.Of(cfg, bootID, log), log: log}, func() { closer.Close() }, nil
}

func complain(log hclog.Logger, held config.Held) {
	for _, problem := range held.Problems {
		log.Error(held.Standing.String(), "file", problem.File, "key", problem.Key, "reason", problem.Error())
	}
}

// run is the supervisor.
func run(n node) int {
	n.settle()
	if err := n.store.Prepare(); err != nil {
		n.log.Error("shares of GPU time are not kept", "reason", err)
		return exitFailed
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	lock, err := trusted.Lock(ctx, n.cfg.Run().VgpudLock())
	if errors.Is(err, trusted.ErrLocked) && n.byProlog {
		return exitOK
	}
	if err != nil {
		n.log.Error("shares of GPU time are not kept by this vgpud: there is another one", "reason", err)
		return exitFailed
	}
	defer lock.Close()
	for _, found := range sitecheck.VgpudMayNot() {
		n.log.Error("slices have no weights: "+found.Says, "remedy", found.Remedy)
	}
	n.log.Info("shares of GPU time are kept from now on", "version", version.Number)
	defer n.log.Info("shares of GPU time are not kept from now on")
	return supervise(n, lock, managerOf())
}

// settle has this process be no part of a job.
func (n node) settle() {
	if err := keeper.LeaveStep(audit.Here(n.cfg.Run())); err != nil {
		n.log.Error("vgpud ends with the job whose prolog began it", "reason", err)
	}
}

// release undoes what a dead worker held: systemd starts it when the supervisor is gone, and administrators may.
func release(n node) int {
	if err := undo(n); err != nil {
		n.log.Error("vgpud has not let go of all that it held", "reason", err)
		return exitFailed
	}
	return exitOK
}

func undo(n node) error {
	return keeper.Undo(n.cfg.Run().VgpudOff(), n.store.BootID, enabler(n.cfg))
}
