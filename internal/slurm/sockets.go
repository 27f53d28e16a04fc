// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// LiveJobs returns the jobs that have a step on this node: each slurmstepd listens on
// <slurmd's spool folder>/<node>_<job>.<step>. A job between two steps, or in its prolog, has
// none; so absence proves nothing. Nor does a file: one that a killed slurmstepd left has no listener.
//
// A socket's name proves nothing either: anybody may give an abstract socket that path, or a name that
// breaks a line of /proc/net/unix, and bind the very path in a mount namespace of his own. So the
// files of the folder, which is root's, are held against what the kernel says listeners are bound to.
func LiveJobs(slurmdSpoolDir, node string) (map[uint32]bool, error) {
	owner, device, err := ownerAndDevice(slurmdSpoolDir)
	if err != nil {
		return nil, fmt.Errorf("list live steps: %w", err)
	}
	entries, err := os.ReadDir(slurmdSpoolDir)
	if err != nil {
		return nil, fmt.Errorf("list live steps: %w", err)
	}
	listening, err := listeners()
	if err != nil {
		return nil, fmt.Errorf("list live steps: %w", err)
	}
	live := make(map[uint32]bool)
	for _, entry := range entries {
		name, ours := strings.CutPrefix(entry.Name(), node+"_")
		job, named := jobOfSocket(name)
		if !ours || !named || live[job] || entry.Type() != fs.ModeSocket {
			continue
		}
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(slurmdSpoolDir, entry.Name()), &st) != nil || st.Uid != 0 && st.Uid != owner {
			continue
		}
		live[job] = listening[boundTo{uint32(st.Ino), device}]
	}
	for job, found := range live {
		if !found {
			delete(live, job)
		}
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
