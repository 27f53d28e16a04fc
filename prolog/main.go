// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// vgpu-prolog is slurmd's Prolog on a node with GPUs: it places the job's slices and records them.
//
// Any exit code but 0 drains the node, so that only a broken node gets one. A job that cannot be
// placed is recorded as refused; the SPANK plugin then fails its tasks with the reason.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

const (
	exitOK     = 0
	exitBroken = 1 // this node's state cannot be kept, or its steps cannot be held
	exitUsage  = 2
)

// options is the command line. Only the configuration's path is for administrators; the rest lets
// tests keep their hands off the machine.
type options struct {
	configPath  string
	selfDir     string
	preloadFile string
	gresTool    string
	again       int // how often the prolog was started again
}

func main() { os.Exit(command(os.Args[1:])) }

func command(args []string) int {
	var opts options
	flags := pflag.NewFlagSet("vgpu-prolog", pflag.ContinueOnError)
	flags.StringVar(&opts.configPath, "config", config.DefaultPath, "configuration file")
	flags.StringVar(&opts.selfDir, "self-dir", rundir.Self, "folder on which a task's own step folder is bound")
	flags.StringVar(&opts.preloadFile, "preload-file", "/etc/ld.so.preload", "file over which a task's own is bound")
	flags.StringVar(&opts.gresTool, "gres-tool", "", "vgpu-gres, when it is not beside this program")
	flags.IntVar(&opts.again, "again", 0, "how often it was started again")
	showVersion := flags.Bool("version", false, "print the version and exit")
	for _, name := range []string{"self-dir", "preload-file", "gres-tool", "again"} {
		if err := flags.MarkHidden(name); err != nil {
			panic(err) // a flag named here is not one of those above
		}
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return exitOK
		}
		fmt.Fprintln(os.Stderr, "vgpu-prolog:", err)
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "vgpu-prolog: unexpected argument %q\n", flags.Arg(0))
		return exitUsage
	}
	if *showVersion {
		fmt.Println("vgpu-prolog", version.Number)
		return exitOK
	}
	return run(opts)
}
