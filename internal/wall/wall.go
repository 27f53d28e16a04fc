// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package wall has the driver itself hold jobs to their memory: limits of the cgroups that Slurm makes for jobs, which
// drivers from R615 on keep (NVIDIA, MPS v3 Memory Partitioning). It was written by that documentation and has been seen on
// the simulated driver alone.
//
// The limit is the job's, on the job's folder, and no step has one of its own. Where the driver keeps its own table
// ("misc"), the nearest folder with a limit counts alone: a job whose steps have limits could have as many times its memory as it
// has steps. The library holds a step's smaller limit.
package wall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Driver is who keeps limits.
type Driver interface {
	SetLimit(gpu device.UUID, folder string, hardBytes uint64) error
	Limit(gpu device.UUID, folder string) (discover.Limit, error)
}

// Keeper raises walls and takes them away.
type Keeper struct {
	Run    rundir.Dir
	Driver Driver
	GPUs   []device.GPU // of the node; those that are lost, or Slurm's own, are left alone
}

// Raise sets the limits of a job's cgroup: what the job was granted of its GPUs, and nothing of the others. It may be called
// again at any time, and must be when the grant has changed. Warnings are of GPUs that the job has no slice of.
func (k Keeper) Raise(ctx context.Context, job uint32, folder string) (warnings []error, err error) {
	unlock, err := k.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	g, err := grant.Read(k.Run.Grant(job))
	if err != nil {
		return nil, err
	}
	switch {
	case g.Job != job || g.Refusal != "" || g.Whole:
		return nil, fmt.Errorf("raise the wall of job %d: it holds no slices", job)
	case !isOfJob(g, folder):
		return nil, fmt.Errorf("raise the wall of job %d: %s is not Slurm's folder of it", job, folder)
	}
	inode, err := grant.CgroupInode(folder)
	if err != nil {
		return nil, err
	}
	w := grant.Wall{Job: job, Restart: g.Restart, BootID: g.BootID, Cgroup: folder, Inode: inode}
	if before, err := grant.ReadWall(k.Run.Wall(job)); err == nil && before.Of(g) {
		w.PeakBytes = before.PeakBytes // of the same run: an earlier folder of Slurm's
	}
	// Before the first limit: who dies in between leaves something to go by.
	if err := grant.WriteWall(k.Run.Wall(job), w); err != nil {
		return nil, err
	}
	if err := enableDmem(folder); err != nil {
		return nil, err
	}
	if warnings, err = k.limit(g, folder); err != nil {
		return nil, err
	}
	w.Raised = true
	return warnings, grant.WriteWall(k.Run.Wall(job), w)
}

func isOfJob(g grant.Grant, folder string) bool {
	return strings.HasPrefix(folder, "/") && g.IsOfJob(folder[strings.LastIndexByte(folder, '/')+1:])
}

func (k Keeper) limit(g grant.Grant, folder string) (warnings []error, err error) {
	granted := make(map[device.UUID]uint64)
	for _, s := range g.Slices {
		granted[s.Device] += uint64(s.MemMiB) << 20
	}
	for uuid, bytes := range granted {
		if err := k.Driver.SetLimit(uuid, folder, bytes); err != nil {
			return nil, err
		}
		// It is believed when it says so itself: a limit that is not kept would look like one that is.
		now, err := k.Driver.Limit(uuid, folder)
		if err != nil {
			return nil, err
		}
		if now.HardBytes > bytes {
			return nil, fmt.Errorf("limit the memory of %s on %s: the driver took %d bytes for %d", folder, uuid, now.HardBytes, bytes)
		}
	}
	for _, gpu := range k.GPUs {
		if _, has := granted[gpu.UUID]; has || gpu.Lost != "" {
			continue
		}
		if err := k.Driver.SetLimit(gpu.UUID, folder, 0); err != nil {
			warnings = append(warnings, err)
		}
	}
	return warnings, nil
}

// Lower takes away the limits of jobs that are over: where Slurm has removed the folder they went with it, and where it is
// still there they are taken away from it. Processes that outlived their job, as those of a slurmstepd that was killed can, have
// nothing more instead: they end with the folder's last process, and a later run raises its own. A job is over when its folder in the run directory is gone, under the lock: a new
// run of it raises its own wall after that.
func (k Keeper) Lower(ctx context.Context) (lowered int, failed error) {
	entries, err := os.ReadDir(k.Run.Walls())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("lower walls: %w", err)
	}
	if len(entries) == 0 {
		return 0, nil
	}
	unlock, err := k.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	for _, entry := range entries {
		job, is := jobOf(entry.Name())
		if _, err := os.Lstat(k.Run.Job(job)); !is || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := k.lower(job); err != nil {
			failed = errors.Join(failed, fmt.Errorf("lower the wall of job %d: %w", job, err))
			continue
		}
		lowered++
	}
	return lowered, failed
}

func (k Keeper) lower(job uint32) error {
	w, err := grant.ReadWall(k.Run.Wall(job))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && w.Stands() {
		left := uint64(discover.Unlimited)
		if isPopulated(w.Cgroup) {
			left = 0
		}
		for _, gpu := range k.GPUs {
			if gpu.Lost == "" {
				err = errors.Join(err, k.Driver.SetLimit(gpu.UUID, w.Cgroup, left))
			}
		}
	}
	if err != nil {
		return err
	}
	return os.Remove(k.Run.Wall(job))
}

// isPopulated says that a process is in a cgroup or below it. It is taken for that where the kernel does not tell.
func isPopulated(folder string) bool {
	events, err := os.ReadFile(filepath.Join(folder, "cgroup.events"))
	return err != nil || !bytes.Contains(events, []byte("populated 0\n"))
}

// Measure asks the driver what the jobs have by now, and keeps the most of it for their records.
func (k Keeper) Measure(ctx context.Context) (failed error) {
	entries, err := os.ReadDir(k.Run.Walls())
	if err != nil || len(entries) == 0 {
		return nil // there is no wall
	}
	unlock, err := k.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, entry := range entries {
		if job, is := jobOf(entry.Name()); is {
			failed = errors.Join(failed, k.measure(job))
		}
	}
	return failed
}

func (k Keeper) measure(job uint32) error {
	w, err := grant.ReadWall(k.Run.Wall(job))
	if err != nil || !w.Stands() {
		return nil
	}
	g, err := grant.Read(k.Run.Grant(job))
	if err != nil || !w.Of(g) { // it is over
		return nil
	}
	higher := false
	for _, s := range g.Slices {
		now, err := k.Driver.Limit(s.Device, w.Cgroup)
		if err != nil {
			return err
		}
		if now.UsedBytes > w.PeakBytes[s.Device] {
			if w.PeakBytes == nil {
				w.PeakBytes = make(map[device.UUID]uint64)
			}
			w.PeakBytes[s.Device], higher = now.UsedBytes, true
		}
	}
	if !higher {
		return nil
	}
	return grant.WriteWall(k.Run.Wall(job), w)
}

// lock keeps the limits of one job from being set and taken away at once.
func (k Keeper) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(k.Run.Walls(), 0o755); err != nil {
		return nil, fmt.Errorf("lock walls: %w", err)
	}
	file, err := trusted.Lock(ctx, k.Run.DriverLock())
	if err != nil {
		return nil, err
	}
	return func() { file.Close() }, nil
}

func jobOf(name string) (uint32, bool) {
	number, is := strings.CutSuffix(name, ".json")
	job, err := strconv.ParseUint(number, 10, 32)
	return uint32(job), is && err == nil
}
