// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
)

// runtimeTime is how long one container may take.
const runtimeTime = 60 * time.Second

// failed is the verdict on a runtime that ran nothing.
const failed = "failed"

// containerRuntime is a program that runs a root file system as a container.
type containerRuntime struct {
	name   string
	tries  [][]string // arguments in front; the first with which it runs counts
	inside func(image rootImage, command []string) []string
	remedy string // where it is closed

	version string                         // what it is asked for its version with; "": --version
	env     func(image rootImage) []string // what it needs beside the step's environment
}

// mounting is the arguments by which folders are seen inside by the names that they have outside.
func mounting(folders []string, form func(folder string) []string) (args []string) {
	for _, folder := range folders {
		args = append(args, form(folder)...)
	}
	return args
}

var runtimes = []containerRuntime{
	{name: "apptainer", tries: [][]string{{"exec"}}, inside: insideApptainer, remedy: apptainerRemedy},
	{name: "singularity", tries: [][]string{{"exec"}}, inside: insideApptainer, remedy: apptainerRemedy},
	{name: "podman", tries: [][]string{{"run"}, {"--cgroup-manager=cgroupfs", "--events-backend=none", "run", "--cgroups=disabled"}}, inside: insidePodman,
		remedy: "put containers/podman.conf into /etc/containers/containers.conf.d"},
	{name: "enroot", tries: [][]string{{"start"}}, inside: insideEnroot, remedy: sitecheck.EnrootRemedy, version: "version", env: envOfEnroot},
	{name: "ch-run", tries: [][]string{{}}, inside: insideCharliecloud},
	{name: "bwrap", tries: [][]string{{"--unshare-user"}}, inside: insideBubblewrap},
}

const apptainerRemedy = "let it mount /dev, or take the lines of containers/apptainer.conf"

// insideEnroot starts the root file system by its name in the folder of enroot's containers (enroot's doc/cmd/start.md).
func insideEnroot(image rootImage, command []string) []string {
	mounts := mounting(image.folders, func(folder string) []string { return []string{"--mount", folder + ":" + folder} })
	return slices.Concat(mounts, []string{filepath.Base(image.root)}, command)
}

// envOfEnroot are its folders (doc/configuration.md), of which a user may have none where no session of his is.
func envOfEnroot(image rootImage) []string {
	return []string{"ENROOT_DATA_PATH=" + filepath.Dir(image.root), "ENROOT_RUNTIME_PATH=" + image.root + "/tmp/enroot-runtime", "ENROOT_CACHE_PATH=" + image.root + "/tmp/enroot-cache"}
}

func insideApptainer(image rootImage, command []string) []string {
	mounts := mounting(image.folders, func(folder string) []string { return []string{"--bind", folder} })
	return slices.Concat(mounts, []string{image.root}, command)
}

func insidePodman(image rootImage, command []string) []string {
	mounts := mounting(image.folders, func(folder string) []string { return []string{"--volume", folder + ":" + folder + ":ro,rbind"} })
	return slices.Concat([]string{"--rm", "--network=none", "--env-host"}, mounts, []string{"--rootfs", image.root}, command)
}

func insideCharliecloud(image rootImage, command []string) []string {
	mounts := mounting(image.folders, func(folder string) []string { return []string{"-b", folder + ":" + folder} })
	return slices.Concat(mounts, []string{image.root, "--"}, command)
}

func insideBubblewrap(image rootImage, command []string) []string {
	mounts := mounting(image.folders, func(folder string) []string { return []string{"--ro-bind", folder, folder} })
	return slices.Concat([]string{"--bind", image.root, "/"}, mounts, []string{"--dev-bind", "/dev", "/dev", "--proc", "/proc"}, command)
}

// containerFinding is what one runtime does.
type containerFinding struct {
	Runtime string `json:"runtime"`
	Version string `json:"version"`
	Verdict string `json:"verdict"`
	Why     string `json:"why,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

// checkContainers tries each runtime that is installed, in the step in which it runs.
func checkContainers(command *cobra.Command, cfg config.Config, asJSON bool) error {
	if _, err := os.Lstat(filepath.Join(rundir.Self, "limits")); err != nil || os.Geteuid() == 0 {
		return errors.New("containers are tried in a step, by a user: srun --gres=vgpu:1 /usr/sbin/vgpu-gres check --containers")
	}
	image, err := makeImage(cfg)
	if err != nil {
		return fmt.Errorf("make a root file system: %w", err)
	}
	defer os.RemoveAll(image.root)
	findings := []containerFinding{}
	for _, r := range runtimes {
		if path, err := exec.LookPath(r.name); err == nil {
			findings = append(findings, r.try(command.Context(), path, image))
		}
	}
	out := command.OutOrStdout()
	if asJSON {
		err = printJSON(out, findings)
	} else {
		printContainers(command, findings)
	}
	if err == nil && slices.ContainsFunc(findings, func(f containerFinding) bool { return f.Verdict == open || f.Verdict == failed }) {
		err = errFindings
	}
	return err
}

func printContainers(command *cobra.Command, findings []containerFinding) {
	out := command.OutOrStdout()
	for _, f := range findings {
		fmt.Fprintf(out, "%s (%s): %s", f.Runtime, f.Version, f.Verdict)
		if f.Why != "" {
			fmt.Fprintf(out, ": %s", f.Why)
		}
		if f.Remedy != "" {
			fmt.Fprintf(out, " -> %s", f.Remedy)
		}
		fmt.Fprintln(out)
	}
	if len(findings) == 0 {
		fmt.Fprintln(out, "no runtime for containers is installed")
	}
}

func (r containerRuntime) try(ctx context.Context, path string, image rootImage) containerFinding {
	f := containerFinding{Runtime: r.name, Verdict: failed}
	var env []string
	if r.env != nil {
		env = r.env(image)
	}
	said, _ := runFor(ctx, env, path, cmp.Or(r.version, "--version"))
	f.Version, _, _ = strings.Cut(strings.TrimSpace(said), "\n")
	for _, front := range r.tries {
		out, err := runFor(ctx, env, path, slices.Concat(front, r.inside(image, []string{image.probe, "probe-cuda"}))...)
		if verdict, why, found := readProbe(out); found {
			f.Verdict, f.Why = verdict, why
			break
		}
		f.Why = lastLine(out)
		if f.Why == "" && err != nil {
			f.Why = err.Error()
		}
	}
	if f.Verdict == closed {
		f.Remedy = r.remedy
	}
	return f
}

func runFor(ctx context.Context, env []string, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	return out.String(), err
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
