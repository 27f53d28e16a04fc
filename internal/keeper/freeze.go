// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
)

// Names of the kernel's files (cgroup-v2.rst, freezer-subsystem.rst).
const (
	procsFile    = "cgroup.procs"
	freezeFileV2 = "cgroup.freeze"
	freezeFileV1 = "freezer.state"
	killFileV2   = "cgroup.kill"
	freezeV1     = "FROZEN"
	freezeV2     = "1"
)

// cgroups are the folders of the hierarchies that can freeze; "": not mounted.
type cgroups struct{ v2, freezer string }

// mountedCgroups finds them.
func mountedCgroups() (found cgroups) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return cgroups{}
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		switch {
		case fields[2] == "cgroup2" && found.v2 == "":
			found.v2 = fields[1]
		case fields[2] == "cgroup" && found.freezer == "" && slices.Contains(strings.Split(fields[3], ","), "freezer"):
			found.freezer = fields[1]
		}
	}
	return found
}

// LeaveStep moves this process out of a step's cgroups, where a prolog that ran in one (PrologFlags=RunInJob) has begun it: it outlives the job.
func LeaveStep(a audit.Auditor) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("leave the job: %w", err)
	}
	for _, controllers := range a.Hierarchies(os.Getpid()) {
		for line := range strings.Lines(string(mounts)) {
			fields := strings.Fields(line)
			if len(fields) < 4 || !isHierarchy(fields[2], strings.Split(fields[3], ","), controllers) {
				continue
			}
			if err := writeControl(filepath.Join(fields[1], procsFile), "0"); err != nil {
				return fmt.Errorf("leave the job: %w", err)
			}
			break
		}
	}
	return nil
}

// isHierarchy says whether a mount of this type and with these options is that of the controllers, as /proc/PID/cgroup names them.
func isHierarchy(kind string, options []string, controllers string) bool {
	if controllers == "" {
		return kind == "cgroup2"
	}
	for name := range strings.SplitSeq(controllers, ",") {
		if kind != "cgroup" || !slices.Contains(options, name) {
			return false
		}
	}
	return true
}

// frozenBy is how a step can be frozen: by its cgroups where Slurm has made some, or else process by process. slurmstepd goes on, as Slurm has to reach its
// step. On cgroup v2 these are the folders below the folder that Slurm itself freezes for a suspended job, so that neither undoes the other's work.
func (c cgroups) frozenBy(step audit.Step, isStepd func(int) bool, pid int) (files []FreezerFile) {
	mount, file, freeze, thaw := c.v2, freezeFileV2, freezeV2, "0"
	if step.Controller != "" {
		mount, file, freeze, thaw = c.freezer, freezeFileV1, freezeV1, "THAWED"
	}
	if mount == "" || step.Folder == "" {
		return nil
	}
	top, leaf := filepath.Join(mount, step.Folder), filepath.Join(mount, step.Leaf)
	if !slices.Contains(members(leaf), pid) { // another cgroup namespace's name, or it has moved
		return nil
	}
	slurms, covered := "", false
	if step.Controller == "" {
		slurms = filepath.Join(top, "user")
	}
	for _, folder := range withoutDaemon(top, slurms, isStepd) {
		path := filepath.Join(folder, file)
		if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) != thaw {
			continue // it cannot be frozen, or is frozen already
		}
		files = append(files, FreezerFile{File: path, Freeze: freeze, Thaw: thaw})
		covered = covered || leaf == folder || strings.HasPrefix(leaf, folder+"/")
	}
	if !covered {
		return nil
	}
	return files
}

// withoutDaemon are the highest folders at and below one that hold no slurmstepd, and that are not the one that Slurm freezes for itself
// (src/plugins/cgroup/v2: the step's folder "user").
func withoutDaemon(folder, slurms string, isStepd func(int) bool) (found []string) {
	if folder != slurms && !holdsDaemon(folder, isStepd) {
		return []string{folder}
	}
	for _, below := range subfolders(folder) {
		found = append(found, withoutDaemon(below, slurms, isStepd)...)
	}
	return found
}

func holdsDaemon(folder string, isStepd func(int) bool) bool {
	return slices.ContainsFunc(members(folder), isStepd) ||
		slices.ContainsFunc(subfolders(folder), func(b string) bool { return holdsDaemon(b, isStepd) })
}

func members(folder string) (pids []int) {
	text, err := os.ReadFile(filepath.Join(folder, procsFile))
	if err != nil {
		return nil
	}
	for _, word := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

func subfolders(folder string) (found []string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			found = append(found, filepath.Join(folder, entry.Name()))
		}
	}
	return found
}

// Freeze stops the step. Where a part cannot be stopped, Freeze stops the rest.
func (f Frozen) Freeze() (err error) {
	for _, file := range f.Files {
		err = errors.Join(err, writeControl(file.File, file.Freeze))
	}
	for _, p := range f.Processes {
		err = errors.Join(err, signal(p, unix.SIGSTOP))
	}
	return err
}

// Thaw lets the step go on. A part that is gone needs no call.
func (f Frozen) Thaw() (err error) {
	for _, file := range f.Files {
		err = errors.Join(err, writeControl(file.File, file.Thaw))
	}
	for _, p := range f.Processes {
		err = errors.Join(err, signal(p, unix.SIGCONT))
	}
	return err
}

// members are the processes of a cgroup.
func (f Frozen) members() (pids []int) {
	for _, file := range f.Files {
		pids = append(pids, membersBelow(filepath.Dir(file.File))...)
	}
	for _, p := range f.Processes {
		pids = append(pids, p.PID)
	}
	return pids
}

// Kill ends the processes of a step, and the processes that these begin meanwhile: it looks again, until none is left.
func (f Frozen) Kill(again func() (Frozen, error)) error {
	err := f.Freeze() // so that none begins another one
	f.stands()
	all := f
	for range mostKills {
		killErr := all.killOnce()
		time.Sleep(killWait)
		var lookErr error
		if all, lookErr = again(); lookErr != nil { // the process by which the step is found is gone
			all = f
		}
		if len(f.left())+len(all.left()) == 0 {
			return errors.Join(err, killErr, f.Thaw())
		}
	}
	return errors.Join(err, f.Thaw(), fmt.Errorf("%d processes are left", len(all.left())))
}

// stands waits until cgroup v1 has stopped all processes. On v2 killed processes need not be stopped.
func (f Frozen) stands() {
	for _, file := range f.Files {
		for range mostKills {
			if now, err := os.ReadFile(file.File); file.Freeze != freezeV1 || err != nil || strings.TrimSpace(string(now)) == freezeV1 {
				break
			}
			time.Sleep(freezeWait)
		}
	}
}

// killOnce kills the processes that are there. Under cgroup v1 a frozen process ends when it goes on.
func (f Frozen) killOnce() (err error) {
	for _, file := range f.Files {
		folder := filepath.Dir(file.File)
		if kill := filepath.Join(folder, killFileV2); exists(kill) { // Linux 5.14 and later; it also ends processes that were begun meanwhile
			err = errors.Join(err, writeControl(kill, "1"))
			continue
		}
		for _, pid := range membersBelow(folder) {
			err = errors.Join(err, signal(audit.Process{PID: pid}, unix.SIGKILL))
		}
		if file.Freeze == freezeV1 {
			err = errors.Join(err, writeControl(file.File, file.Thaw))
		}
	}
	for _, p := range f.Processes {
		err = errors.Join(err, signal(p, unix.SIGKILL))
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// left are the processes that have not ended.
func (f Frozen) left() []int {
	return slices.DeleteFunc(f.members(), channels.HasEnded)
}

func membersBelow(folder string) (pids []int) {
	pids = members(folder)
	for _, b := range subfolders(folder) {
		pids = append(pids, membersBelow(b)...)
	}
	return pids
}

// writeControl writes to a file of the kernel's. A cgroup that is gone is no error.
func writeControl(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil && !errors.Is(err, unix.ENODEV) {
		return &os.PathError{Op: "write " + value + " to", Path: path, Err: err}
	}
	return nil
}

// signal sends to this process, and to no later process of the same number. A process that is gone needs no signal.
func signal(p audit.Process, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err == nil {
		defer unix.Close(fd)
		if start, ok := (audit.Auditor{Proc: "/proc"}).StartOf(p.PID); p.StartTicks != 0 && (!ok || start != p.StartTicks) {
			return nil
		}
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %d to process %d: %w", sig, p.PID, err)
	}
	return nil
}
