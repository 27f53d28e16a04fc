// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Wall is where the driver itself holds a job to its memory: the job's cgroup, for which `vgpuctl wall raise` has
// set limits. It stands in walls/ID.json, which outlives the job's folder until the limits are gone.
type Wall struct {
	Version int    `json:"version"`
	Job     uint32 `json:"job"`
	Restart int    `json:"restart"`
	BootID  string `json:"boot_id"`
	Cgroup  string `json:"cgroup"` // Slurm's folder of the job, below the mount of cgroup v2
	Inode   uint64 `json:"inode"`  // of that folder: a later one of the same name has no limits
	Raised  bool   `json:"raised"` // false: somebody was about to
	// PeakBytes is the most that the driver has said, by device. It is asked now and then, and has no peak of its own.
	PeakBytes map[device.UUID]uint64 `json:"peak_bytes,omitempty"`
}

const (
	wallVersion  = 1
	maxWallBytes = 64 << 10
)

// ErrWall is wrapped when a wall's file exists but does not hold one of this version.
var ErrWall = errors.New("not a wall of this version")

// ReadWall reads a trusted file. A missing one is fs.ErrNotExist.
func ReadWall(path string) (Wall, error) {
	data, err := trusted.ReadFile(path, maxWallBytes)
	if err != nil {
		return Wall{}, fmt.Errorf("read wall: %w", err)
	}
	var w Wall
	if err := json.Unmarshal(data, &w); err != nil {
		return Wall{}, fmt.Errorf("read wall %s: %w: %w", path, ErrWall, err)
	}
	if w.Version != wallVersion || w.Job == 0 || !filepath.IsAbs(w.Cgroup) {
		return Wall{}, fmt.Errorf("read wall %s: %w", path, ErrWall)
	}
	return w, nil
}

// WriteWall replaces the file in one step.
func WriteWall(path string, w Wall) error {
	w.Version = wallVersion
	data, err := json.Marshal(w)
	if err == nil {
		err = trusted.WriteFile(path, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write wall: %w", err)
	}
	return nil
}

// Stands says that the cgroup is still there. The driver's limits end with it.
func (w Wall) Stands() bool {
	inode, err := CgroupInode(w.Cgroup)
	return err == nil && inode == w.Inode
}

// Of says that the wall is this run's.
func (w Wall) Of(g Grant) bool {
	return w.Job == g.Job && w.Restart == g.Restart && w.BootID == g.BootID
}

// CgroupInode is the identity of a folder of cgroup v2.
func CgroupInode(folder string) (uint64, error) {
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: folder, Err: err}
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &fs), unix.Fstat(fd, &st)); err != nil {
		return 0, &os.PathError{Op: "stat", Path: folder, Err: err}
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("%s is no folder of cgroup v2", folder)
	}
	return st.Ino, nil
}

// IsOfJob says whether Slurm gives a job's cgroup this name: job_5, or the run's SLUID from 26.05 on
// (src/plugins/cgroup/v2/cgroup_v2.c).
func (g Grant) IsOfJob(name string) bool {
	return name == "job_"+strconv.FormatUint(uint64(g.Job), 10) || name != "" && name == g.SLUID
}
