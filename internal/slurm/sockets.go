// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// procNetUnix lists the sockets that somebody listens on; a file left by a dead slurmstepd is not in it.
const procNetUnix = "/proc/net/unix"

// LiveJobs returns the jobs that have a step on this node: each slurmstepd listens on
// <slurmd's spool folder>/<node>_<job>.<step>. A job between two steps, or in its prolog, has
// none; so absence proves nothing.
func LiveJobs(slurmdSpoolDir, node string) (map[uint32]bool, error) {
	file, err := os.Open(procNetUnix)
	if err != nil {
		return nil, fmt.Errorf("list live steps: %w", err)
	}
	defer file.Close()
	folders := []string{filepath.Clean(slurmdSpoolDir)}
	if real, err := filepath.EvalSymlinks(slurmdSpoolDir); err == nil {
		folders = append(folders, real)
	}
	live := make(map[uint32]bool)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// The folder is part of the match: only root can make a socket there.
		slash := strings.IndexByte(lines.Text(), '/')
		if slash < 0 {
			continue
		}
		path := lines.Text()[slash:]
		for _, folder := range folders {
			if name, ok := strings.CutPrefix(path, folder+"/"+node+"_"); ok {
				if job, ok := jobOfSocket(name); ok {
					live[job] = true
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list live steps: %w", err)
	}
	return live, nil
}

// jobOfSocket reads "123.4294967291".
func jobOfSocket(name string) (uint32, bool) {
	jobText, stepText, ok := strings.Cut(name, ".")
	job, err := strconv.ParseUint(jobText, 10, 32)
	if !ok || err != nil || strings.Trim(stepText, "0123456789.") != "" {
		return 0, false
	}
	return uint32(job), true
}
