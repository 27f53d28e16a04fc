// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
)

// wallTime is more than `vgpuctl wall raise` takes to start NVML on a node of 16 GPUs behind another one.
const wallTime = 90 * time.Second

// raiseWall has the driver hold the job to its memory before a task runs. The limits are those of the job's cgroup, in which
// every step is. NVML is not for Slurm's processes: a program of ours asks it, once for as long as the cgroup is there.
func raiseWall(s Step, held grant.Grant) error {
	folder, err := jobCgroup("/proc/self", held)
	if err != nil {
		return fmt.Errorf("the driver cannot hold the job to its memory: %w", err)
	}
	wall, err := grant.ReadWall(s.RunDir.Wall(s.Job))
	if err == nil && wall.Raised && wall.Of(held) && wall.Cgroup == folder && wall.Stands() {
		return nil
	}
	return raise(s, held, folder)
}

func raise(s Step, held grant.Grant, folder string) error {
	if len(held.WallCommand) == 0 {
		return errors.New("the driver cannot hold the job to its memory: vgpu-prolog found no vgpuctl")
	}
	if err := grant.TrustProgram(held.WallCommand[0]); err != nil {
		return fmt.Errorf("the driver cannot hold the job to its memory: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), wallTime)
	defer cancel()
	args := append(held.WallCommand[1:len(held.WallCommand):len(held.WallCommand)], strconv.FormatUint(uint64(s.Job), 10), folder)
	cmd := exec.CommandContext(ctx, held.WallCommand[0], args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	var said bytes.Buffer
	cmd.Stderr = &said // root's own program, which writes a line at most
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		line := strings.TrimPrefix(strings.TrimSpace(said.String()), "vgpuctl: ")
		if line == "" {
			line = err.Error()
		}
		return fmt.Errorf("the driver cannot hold the job to its memory: %s", line)
	}
	return nil
}

// jobCgroup is Slurm's folder of the job, above the one of the step in which slurmstepd is: with cgroup/v2 proctrack/cgroup
// has moved it there before any plugin of SPANK is asked (slurmstepd/mgr.c).
func jobCgroup(proc string, held grant.Grant) (string, error) {
	paths, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "mounts"))
	if err != nil {
		return "", err
	}
	path, found := "", false
	for line := range strings.Lines(string(paths)) {
		if rest, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); is {
			path, found = rest, true
		}
	}
	before, _, isStep := strings.Cut(path, "/step_")
	if !found || !isStep || !held.IsOfJob(filepath.Base(before)) {
		return "", fmt.Errorf("slurmstepd is in no cgroup v2 of job %d: isolation: wall needs ProctrackType=proctrack/cgroup with cgroup/v2", held.Job)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "cgroup2" {
			folder := filepath.Join(fields[1], before)
			if _, err := grant.CgroupInode(folder); err == nil {
				return folder, nil
			}
		}
	}
	return "", fmt.Errorf("no mount of cgroup v2 has %s", before)
}
