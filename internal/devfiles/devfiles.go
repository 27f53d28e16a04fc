// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package devfiles closes the device files of the GPUs that slices are cut from to everybody but root and a group, and
// makes files of the same devices in a folder of root's, which steps that hold a GPU get in their place.
package devfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Set is the device files of a node.
type Set struct {
	Dir     string // where nvidiaN stand
	StepDir string // the folder of what steps are given
	Proc    string // /proc, where it tells of the driver whose files these are; else ""
	Leave   []int  // GPUs that Slurm hands out by itself, as the N of nvidiaN: their files stay open
	Group   string // whose members may open what is closed, by name or number; "": nobody but root
}

// State is how a file stands.
type State string

const (
	Closed  State = "closed" // nobody but root and the group may open it
	Open    State = "open"
	Missing State = "missing" // the driver has the GPU, and there is no file
)

// File is the device file of one GPU.
type File struct {
	Minor    int    `json:"minor"`
	Path     string `json:"path"`
	State    State  `json:"state"`
	Mode     string `json:"mode"` // octal, "" if it is missing
	UID      uint32 `json:"uid"`
	GID      uint32 `json:"gid"`
	Slurms   bool   `json:"slurm_gpu"` // Slurm hands the GPU out by itself
	Held     bool   `json:"held"`      // it is mounted read-only, so that nobody changes it by its name
	StepFile *bool  `json:"step_file"` // there is a file for steps; null: not known to who asks
}

// Wrong says that the file is not as Close leaves it.
func (f File) Wrong() bool {
	return f.State == Missing || !f.Slurms && (f.State == Open || f.StepFile != nil && !*f.StepFile)
}

const (
	openMode   = 0o666
	folderMode = 0o700
)

// ErrInStep is wrapped where the files are those that a step was given: a change there is a change for all steps.
var ErrInStep = errors.New("this is a step of a job, which has files of its own: run it on the node")

// Look says how the files stand, in order of their numbers.
func (s Set) Look() ([]File, error) {
	minors, err := s.minors()
	if err != nil {
		return nil, err
	}
	group := sync.OnceValues(func() (uint32, error) { return lookUp(s.Group) })
	files := make([]File, 0, len(minors))
	for _, minor := range minors {
		file := File{Minor: minor, Path: s.path(minor), State: Missing, Slurms: slices.Contains(s.Leave, minor)}
		st, err := lstat(file.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			file.State, file.Mode, file.UID, file.GID = Open, fmt.Sprintf("%04o", st.Mode&0o7777), st.Uid, st.Gid
			if isClosed(st, group) {
				file.State = Closed
			}
			file.StepFile, file.Held = s.hasStepFile(minor, st), isHeld(file.Path)
		}
		files = append(files, file)
	}
	return files, nil
}

// isClosed: whoever else may open it is in the group. The group is looked up only where a file has one.
func isClosed(st unix.Stat_t, group func() (uint32, error)) bool {
	if st.Uid != 0 || st.Mode&0o007 != 0 {
		return false
	}
	if st.Mode&0o070 == 0 || st.Gid == 0 {
		return true
	}
	gid, err := group()
	return err == nil && st.Gid == gid
}

func (s Set) hasStepFile(minor int, of unix.Stat_t) *bool {
	st, err := lstat(s.stepFile(minor))
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	has := err == nil && isDevice(st, of.Rdev) && st.Mode&openMode == openMode
	return &has
}

// Close closes the files and makes the files for steps. The steps' files come first, so that a program that is killed here has
// closed nothing that cannot be used. A group that is not known closes the files to all but root, and is an error.
func (s Set) Close() error {
	minors, err := s.minors()
	if err != nil {
		return err
	}
	gid, mode, errs := uint32(0), uint32(0o600), []error(nil)
	if s.Group != "" {
		if gid, err = lookUp(s.Group); err != nil {
			errs = append(errs, err)
		} else {
			mode = 0o660
		}
	}
	if err := s.makeFolder(); err != nil {
		return err
	}
	errs = append(errs, s.makeShared())
	for _, minor := range minors {
		if slices.Contains(s.Leave, minor) {
			errs = append(errs, s.make(minor, openMode))
			continue
		}
		if err := errors.Join(s.make(minor, 0o600), s.makeStepFile(minor)); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, s.set(minor, gid, mode))
	}
	return errors.Join(errs...)
}

// Reopen gives the files to all users again, those of Slurm's GPUs as well. The steps' files stay.
func (s Set) Reopen() error {
	minors, err := s.minors()
	if err != nil {
		return err
	}
	var errs []error
	for _, minor := range minors {
		errs = append(errs, s.make(minor, openMode), s.letGo(minor), s.set(minor, 0, openMode))
	}
	return errors.Join(errs...)
}

func (s Set) path(minor int) string { return filepath.Join(s.Dir, "nvidia"+strconv.Itoa(minor)) }
func (s Set) stepFile(minor int) string {
	return filepath.Join(s.StepDir, "nvidia"+strconv.Itoa(minor))
}

// minors are those of the files that are there, and of the GPUs that the driver has.
func (s Set) minors() (minors []int, err error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		digits, found := strings.CutPrefix(entry.Name(), "nvidia")
		if minor, err := strconv.Atoi(digits); found && err == nil && strconv.Itoa(minor) == digits && minor < firstControl {
			minors = append(minors, minor)
		}
	}
	minors = append(minors, s.driversGPUs()...)
	slices.Sort(minors)
	return slices.Compact(minors), nil
}

// makeFolder makes the folder of what steps are given. Where the folder around it is everybody's, somebody may have made it.
func (s Set) makeFolder() error {
	folder := s.StepDir
	if err := os.Mkdir(folder, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := lstat(folder)
	switch {
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0:
		return fmt.Errorf("%s is not a folder of root's", folder)
	}
	return os.Chmod(folder, folderMode)
}

// makeStepFile makes the file that steps are given, as the driver's own would be.
func (s Set) makeStepFile(minor int) error {
	of, err := lstat(s.path(minor))
	if err != nil {
		return err
	}
	if of.Mode&unix.S_IFMT != unix.S_IFCHR {
		return fmt.Errorf("%s is not a character device", s.path(minor))
	}
	path := s.stepFile(minor)
	st, err := lstat(path)
	switch {
	case err == nil && st.Ino == of.Ino && st.Dev == of.Dev:
		return fmt.Errorf("%s: %w", s.path(minor), ErrInStep)
	case err == nil && !isDevice(st, of.Rdev):
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if err := mknod(path, of.Rdev); err != nil {
		return err
	}
	return own(path, 0, openMode)
}

// set gives a file its owner and mode.
func (s Set) set(minor int, gid, mode uint32) error {
	path := s.path(minor)
	st, err := lstat(path)
	if err != nil {
		return err
	}
	if step, err := lstat(s.stepFile(minor)); err == nil && step.Ino == st.Ino && step.Dev == st.Dev {
		return fmt.Errorf("%s: %w", path, ErrInStep)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return fmt.Errorf("%s is not a character device", path)
	}
	if st.Uid == 0 && st.Gid == gid && st.Mode&0o7777 == mode {
		return nil
	}
	if s.isCovered(minor) { // which is changed by its other name
		path = s.cover(minor)
	}
	err = own(path, gid, mode)
	if errors.Is(err, unix.EROFS) { // as when the folder of what is mounted was taken away
		return fmt.Errorf("%w: the mount over it is not of %s: umount %s", err, s.StepDir, path)
	}
	return err
}

// own changes a file and no other that may have come in its place. It is never taken away: steps have mounts on it.
func own(path string, gid, mode uint32) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	name := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := unix.Chown(name, 0, int(gid)); err != nil {
		return &os.PathError{Op: "chown", Path: path, Err: err}
	}
	if err := unix.Chmod(name, mode); err != nil {
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	return nil
}

func mknod(path string, device uint64) error {
	err := unix.Mknod(path, unix.S_IFCHR|0o600, int(device))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "make a device", Path: path, Err: err}
	}
	return nil
}

func isDevice(st unix.Stat_t, device uint64) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == device
}

func lstat(path string) (st unix.Stat_t, err error) {
	if err := unix.Lstat(path, &st); err != nil {
		return st, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st, nil
}

// KnowsGroup says what is wrong with the group's name.
func (s Set) KnowsGroup() error {
	_, err := lookUp(s.Group)
	return err
}
