// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package builds keeps what a job is started with for as long as the job is there: the interposer and the guards. A package that is upgraded or removed takes its files away; these stay.
package builds

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

const (
	// fileSystemBytes bounds all builds together. One takes some five MiB.
	fileSystemBytes = 64 << 20
	maxFiles        = 512
	maxFileBytes    = 32 << 20
	// Grace is how long a build stays that no grant names.
	Grace = 10 * time.Minute
	// unfinished begins the name of what a killed prolog left.
	unfinished = ".new-"
)

// ErrMixed means that what is installed is not all of this program's build: an upgrade is under way, or was left halfway.
var ErrMixed = errors.New("the installed files are of several builds")

// build is what is installed beside each other.
type build struct {
	files []*os.File
	id    string // changes with any file
}

// open opens the installed files. Their identities make the id: to read them all at each job would take milliseconds.
func open(library string) (b build, err error) {
	hash := sha256.New()
	for _, name := range grant.BuildFiles() {
		file, err := os.OpenFile(filepath.Join(filepath.Dir(library), name), os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return b, errors.Join(err, b.close())
		}
		b.files = append(b.files, file)
		identity, err := identify(file)
		if err != nil {
			return b, errors.Join(err, b.close())
		}
		io.WriteString(hash, name+identity)
	}
	b.id = hex.EncodeToString(hash.Sum(nil)[:8])
	return b, nil
}

func (b build) close() (err error) {
	for _, file := range b.files {
		err = errors.Join(err, file.Close())
	}
	return err
}

// identify says which content a file has, without looking, and refuses one that others can write.
func identify(file *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: file.Name(), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o022 != 0 || st.Uid != 0 && st.Uid != uint32(os.Geteuid()) {
		return "", fmt.Errorf("keep %s: %w", file.Name(), trusted.ErrUntrusted)
	}
	return fmt.Sprintf(" %d %d %d %d.%d %d.%d\n", st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec), nil
}

// folder is where the build is, or would be.
func (b build) folder(dir rundir.Dir) string {
	return filepath.Join(dir.Builds(), b.id)
}

// Find is the interposer of the installed build, where it is kept already: fs.ErrNotExist where it is not. It stays for the Grace, in
// which a grant comes to name it.
func Find(dir rundir.Dir, library string) (string, error) {
	b, err := open(library)
	if err != nil {
		return "", err
	}
	defer b.close()
	if err := trusted.Folder(dir.Builds()); err != nil {
		return "", fmt.Errorf("keep the library of jobs: %w", err)
	}
	now := time.Now()
	return filepath.Join(b.folder(dir), filepath.Base(library)), os.Chtimes(b.folder(dir), now, now)
}

// Keep copies the installed build, once. The caller holds the lock of the state.
func Keep(dir rundir.Dir, library string) (path string, err error) {
	if path, err = Find(dir, library); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	if err := Prepare(dir); err != nil {
		return "", err
	}
	b, err := open(library)
	if err != nil {
		return "", err
	}
	defer b.close()
	part, err := os.MkdirTemp(dir.Builds(), unfinished)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	for _, file := range b.files {
		if err := copyTo(filepath.Join(part, filepath.Base(file.Name())), file); err != nil {
			return "", err
		}
	}
	crashpoint.At("builds/copied")
	if err := b.whole(part, library); err != nil {
		return "", err
	}
	if err := os.Chmod(part, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(part, b.folder(dir)); err != nil {
		return "", err
	}
	return filepath.Join(b.folder(dir), filepath.Base(library)), nil
}

// whole says that the copy is one build, for which nothing was installed over it meanwhile, and that this program makes pages that it can use.
func (b build) whole(copied, library string) error {
	again, err := open(library)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMixed, err)
	}
	defer again.close()
	if again.id != b.id {
		return fmt.Errorf("%w: %s changed", ErrMixed, filepath.Dir(library))
	}
	needs, err := version.LedgerBytes(filepath.Join(copied, filepath.Base(library)))
	if err != nil {
		return err
	}
	if int64(needs) != ledger.Bytes() {
		return fmt.Errorf("%w: %s needs ledgers of %d bytes, and this program makes them of %d", ErrMixed, library, needs, ledger.Bytes())
	}
	return nil
}

func copyTo(path string, from *os.File) error {
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o755)
	if err != nil {
		return err
	}
	n, err := io.Copy(to, io.LimitReader(from, maxFileBytes))
	if err == nil && n == maxFileBytes {
		err = fmt.Errorf("keep %s: it has %d bytes or more", from.Name(), maxFileBytes)
	}
	if err == nil { // slurmd's umask must not hide it
		err = to.Chmod(0o755)
	}
	return errors.Join(err, to.Close())
}

// Prepare makes the folder, a small file system of its own: that of the run directory is root's and everybody's, and often one
// from which nothing may be loaded.
func Prepare(dir rundir.Dir) error {
	if err := os.Mkdir(dir.Builds(), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := trusted.Folder(dir.Builds()); err != nil {
		return fmt.Errorf("keep the library of jobs: %w", err)
	}
	var folder, above unix.Stat_t
	if err := errors.Join(unix.Lstat(dir.Builds(), &folder), unix.Lstat(string(dir), &above)); err != nil {
		return fmt.Errorf("keep what jobs are started with in %s: %w", dir.Builds(), err)
	}
	var mountErr error
	if folder.Dev == above.Dev {
		options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=755,uid=0,gid=0", fileSystemBytes, maxFiles)
		mountErr = unix.Mount("slurm-vgpu", dir.Builds(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
		if mountErr != nil && !errors.Is(mountErr, unix.EPERM) && !errors.Is(mountErr, unix.EACCES) && !errors.Is(mountErr, unix.ENODEV) {
			return &os.PathError{Op: "mount a tmpfs on", Path: dir.Builds(), Err: mountErr}
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir.Builds(), &st); err != nil {
		return &os.PathError{Op: "statfs", Path: dir.Builds(), Err: err}
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		if mountErr != nil {
			return fmt.Errorf("nothing may be loaded from %s: it is mounted noexec, and nothing can be mounted there: %w", dir.Builds(), mountErr)
		}
		return fmt.Errorf("nothing may be loaded from %s: it is mounted noexec", dir.Builds())
	}
	return os.Chmod(dir.Builds(), 0o755) // slurmd's umask must not shut jobs out
}

// Sweep removes the builds that no grant names, but the installed one, which the next job takes. The caller holds the lock of the
// state. Where a grant cannot be read, all stay.
func Sweep(dir rundir.Dir, library string) (removed int, failed error) {
	entries, err := os.ReadDir(dir.Builds())
	if err != nil || len(entries) == 0 {
		return 0, ignoreMissing(err)
	}
	named, err := names(dir)
	if err != nil {
		return 0, err
	}
	if installed, err := Find(dir, library); err == nil {
		named[filepath.Base(filepath.Dir(installed))] = true
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if named[entry.Name()] || err != nil || trusted.Age(info.ModTime()) < Grace {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir.Builds(), entry.Name())); err != nil {
			failed = errors.Join(failed, err)
		} else {
			removed++
		}
	}
	return removed, failed
}

// Several says that there is a build besides the installed one, which Sweep may have something to do with.
func Several(dir rundir.Dir, library string) bool {
	entries, err := os.ReadDir(dir.Builds())
	if err != nil || len(entries) != 1 {
		return len(entries) > 1
	}
	b, err := open(library)
	defer b.close()
	return err != nil || entries[0].Name() != filepath.Base(b.folder(dir))
}

// names are the builds of the jobs that are here.
func names(dir rundir.Dir) (map[string]bool, error) {
	jobs, err := os.ReadDir(dir.Jobs())
	if err != nil {
		return nil, ignoreMissing(err)
	}
	named := map[string]bool{}
	for _, entry := range jobs {
		job, err := strconv.ParseUint(entry.Name(), 10, 32)
		if err != nil {
			continue
		}
		g, err := grant.Read(dir.Grant(uint32(job)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if rest, below := strings.CutPrefix(g.Library, dir.Builds()+"/"); below {
			named[filepath.Dir(rest)] = true
		}
	}
	return named, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
