// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

const (
	// endedMark begins the name of a folder whose step has ended, and that a container still has. No step's name does.
	endedMark = "."
	// Bounds of what a user's namespaces may cost the end of his step; what was not looked at is taken for mounted.
	lookTime      = 500 * time.Millisecond
	maxMountBytes = 4 << 20
)

// EndStep takes a step's folder away, and those of steps that ended before. One that is mounted in the container of another step, which
// entered it while it ran, stays until a later step ends, or the job: with the folder goes what is mounted in it, everywhere.
func EndStep(dir rundir.Dir, g Grant, stepName string) error {
	steps := filepath.Dir(dir.Step(g.Job, stepName))
	ended, others := []string{stepName}, false
	entries, err := os.ReadDir(steps)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), endedMark) {
			ended = append(ended, entry.Name())
		} else if entry.Name() != stepName {
			others = true
		}
	}
	mounted := func(string) bool { return false }
	if others && g.IsStrict() && !g.Whole {
		mounted = mountedElsewhere(filepath.Join("/", filepath.Base(dir.Jobs()), filepath.Base(dir.Job(g.Job)), filepath.Base(steps)), time.Now().Add(lookTime))
	}
	var errs []error
	for _, name := range ended {
		folder := filepath.Join(steps, name)
		switch {
		case !mounted(name):
			errs = append(errs, os.RemoveAll(folder))
		case name == stepName:
			if err := os.Rename(folder, filepath.Join(steps, endedMark+name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// mountedElsewhere says of the folders in one, which is named as its file system may see it, whether a mount namespace that some process is
// in has them mounted, but this process's own.
func mountedElsewhere(in string, until time.Time) func(name string) bool {
	all := func(string) bool { return true }
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return all
	}
	found, seen := map[string]bool{}, map[string]bool{}
	if own, err := os.Readlink("/proc/self/ns/mnt"); err == nil {
		seen[own] = true
	}
	for _, process := range processes {
		if name := process.Name(); name[0] < '1' || name[0] > '9' {
			continue
		}
		namespace, err := os.Readlink("/proc/" + process.Name() + "/ns/mnt")
		if err != nil || seen[namespace] { // it has ended
			continue
		}
		if time.Now().After(until) || !addMounted(found, "/proc/"+process.Name()+"/mountinfo", in) {
			return all
		}
		seen[namespace] = true
	}
	return func(name string) bool { return found[name] }
}

// addMounted adds which of the folders are mounted by a table of mounts: its fourth cell is what is mounted (proc_pid_mountinfo(5)). False
// if the table is longer than one that is believed.
func addMounted(found map[string]bool, table, in string) bool {
	file, err := os.Open(table)
	if err != nil {
		return true // the process has ended
	}
	defer file.Close()
	all := &io.LimitedReader{R: file, N: maxMountBytes}
	scanner := bufio.NewScanner(all)
	for scanner.Scan() {
		cells := strings.Fields(scanner.Text())
		if len(cells) < 4 {
			continue
		}
		if folder, name := filepath.Split(cells[3]); strings.HasSuffix(filepath.Clean(folder), in) {
			found[name] = true
		}
	}
	return scanner.Err() == nil && all.N > 0
}
