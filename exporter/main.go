// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// vgpu-exporter gives Prometheus what `vgpuctl metrics` says of a node's GPUs and slices.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

const exitUsage = 2

// errUsage is what the command line is wrong by.
var errUsage = errors.New("see vgpu-exporter --help")

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	command := rootCommand()
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	err := command.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "vgpu-exporter:", err)
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	if looked, is := errors.AsType[*exec.ExitError](err); is && looked.Exited() {
		return looked.ExitCode() // 78: config.yaml is wrong
	}
	return 1
}

// flags is the command line.
type flags struct {
	config, node     string
	listen, textfile string
	every, over      time.Duration
	text, steps      bool
	compat           []string
}

const longText = `Give Prometheus the metrics of this node's GPUs and slices: over HTTP at /metrics, on the socket of
slurm-vgpu-exporter.socket or at --listen; or with --textfile in a file for node_exporter, which is
replaced again and again; or with --text once, on standard output.

Each look at the node is a "vgpuctl metrics" of its own, so that a driver that hangs does not hang this
program. Requests within a second share one look. Root sees all slices, others their own. A figure that cannot
be read or was not measured is left out and is never 0; slurm_vgpu_source_readable says what could be read.
metrics_users: false in config.yaml leaves out who the jobs are of.

--compat adds series by the names of other exporters, of each job's slice in place of its GPU: jobstats
(nvidia_gpu_*) and computecanada (slurm_job_*_gpu). Utilisation among them is the GPU time used, in
percent of what the slice is entitled to, between two looks that are --over apart.

docs/metrics.md has every name, its labels and its unit.

Exit codes: 0 fine, 1 something went wrong, 2 wrong usage, 78 config.yaml is wrong (--text, and --textfile
with --every=0s).`

func rootCommand() *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use:   "vgpu-exporter [--listen ADDRESS | --textfile FILE [--every DURATION] | --text]",
		Short: "Give Prometheus the metrics of this node's GPUs and slices",
		Long:  longText,
		Example: "  vgpu-exporter --text\n  vgpu-exporter --listen 127.0.0.1:9746\n" +
			"  vgpu-exporter --textfile /var/lib/prometheus/node-exporter/slurm_vgpu.prom",
		Version:       version.Number,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no argument %q: %w", args[0], errUsage)
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			ways := slices.DeleteFunc([]string{"text", "textfile", "listen"}, func(way string) bool { return !command.Flags().Changed(way) })
			if len(ways) > 1 {
				return fmt.Errorf("--%s and --%s exclude each other: %w", ways[0], ways[1], errUsage)
			}
			return f.run(command.OutOrStdout())
		},
	}
	set := root.Flags()
	set.StringVar(&f.config, "config", config.DefaultPath, "configuration `file`")
	set.StringVar(&f.node, "node", "", "`name` of this node in Slurm (default: the host's)")
	set.StringVar(&f.listen, "listen", "127.0.0.1:9746", "answer at this `address`, where systemd has given no socket")
	set.StringVar(&f.textfile, "textfile", "", "replace this `file` in one step instead")
	set.DurationVar(&f.every, "every", 30*time.Second, "with --textfile: again after this `duration`; 0s: once")
	set.BoolVar(&f.text, "text", false, "print them once instead")
	set.BoolVar(&f.steps, "steps", false, "series for each running step as well (label step)")
	set.StringSliceVar(&f.compat, "compat", nil, "names of other exporters as well: a `list` of jobstats, computecanada")
	set.DurationVar(&f.over, "over", time.Second, "with --compat: how far apart the two looks for utilisation are")
	set.Bool("version", false, "print the version and exit")
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return errors.Join(err, errUsage) })
	root.CompletionOptions.HiddenDefaultCmd = true
	_ = root.MarkFlagFilename("textfile", "prom") // the flags are there
	_ = root.MarkFlagFilename("config", "yaml", "yml")
	_ = root.RegisterFlagCompletionFunc("compat", cobra.FixedCompletions([]string{jobstats, computeCanada}, cobra.ShellCompDirectiveNoFileComp))
	return root
}

// maxOver is what a scrape may wait.
const maxOver = 8 * time.Second

func (f flags) run(out io.Writer) error {
	if f.over <= 0 || f.over > maxOver {
		return fmt.Errorf("--over %s: more than 0s, at most %s: %w", f.over, maxOver, errUsage)
	}
	if f.every < 0 || f.every > 0 && f.every < time.Second {
		return fmt.Errorf("--every %s: 0s, or 1s and more: %w", f.every, errUsage)
	}
	compat, err := parseCompat(f.compat)
	if err != nil {
		return errors.Join(err, errUsage)
	}
	program, err := installed.Find("vgpuctl")
	if err != nil {
		return err
	}
	args := []string{"metrics", "--config", f.config, "--node", f.node}
	if f.steps {
		args = append(args, "--steps")
	}
	if compat.any() {
		args = append(args, "--over", f.over.String())
	}
	l := &looker{program: program, args: args, options: options{steps: f.steps, compat: compat}, wait: lookTime + time.Second}
	switch {
	case f.text:
		return l.write(out)
	case f.textfile != "":
		return l.keep(f.textfile, f.every)
	}
	listener, err := listen(f.listen)
	if err != nil {
		return err
	}
	return serve(listener, l)
}

// listen takes the socket that systemd has given (sd_listen_fds(3)), or makes one.
func listen(address string) (net.Listener, error) {
	const first = 3
	pid, _ := strconv.Atoi(os.Getenv("LISTEN_PID"))           //nolint:forbidigo // systemd sets it
	if pid != os.Getpid() || os.Getenv("LISTEN_FDS") != "1" { //nolint:forbidigo // the same
		return net.Listen("tcp", address) //nolint:noctx // for as long as it runs
	}
	file := os.NewFile(first, "socket")
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("take the socket that systemd has given: %w", err)
	}
	return listener, nil
}

// write is a look in the text format. Where config.yaml is not believed the text says so, and there is an error as well.
func (l *looker) write(out io.Writer) error {
	families, problem := l.look()
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(out, family); err != nil {
			return err
		}
	}
	return problem
}

// keep replaces a file again and again. client_golang's own WriteToTextfile changes the mode of its temporary file by path, and the folder may be another user's.
func (l *looker) keep(path string, every time.Duration) error {
	for {
		err := l.replace(path)
		if every == 0 {
			return err
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "vgpu-exporter:", err)
		}
		time.Sleep(every)
	}
}

func (l *looker) replace(path string) error {
	old := func(made time.Time) bool { return trusted.Age(made) > time.Minute }
	for _, left := range trusted.Temporaries(filepath.Dir(path), old, func(name string) bool { return name == filepath.Base(path) }) {
		_ = os.Remove(left) // by a run that was killed
	}
	var text bytes.Buffer
	problem := l.write(&text)
	if text.Len() == 0 {
		return problem
	}
	if err := trusted.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write metrics to %s: %w", path, err)
	}
	return problem
}
