// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	usageVersion  = 1
	maxUsageBytes = 4 << 20
	// maxUsageSteps bounds usage.json for jobs of very many steps; the job's totals stay exact.
	maxUsageSteps = 1024
	usageLockWait = 5 * time.Second
)

// Usage is what a job used on this node, as far as is known: the content of usage.json. It is
// root's own copy, so that a job which wipes its ledger later loses nothing of its record.
type Usage struct {
	Version int                  `json:"version"`
	Job     uint32               `json:"job"`
	Restart int                  `json:"restart"`
	Devices []ledger.DeviceUsage `json:"devices"` // in slice order
	Steps   []StepUsage          `json:"steps"`   // finished steps, oldest first
}

// StepUsage is what one step used.
type StepUsage struct {
	Step    string               `json:"step"`
	Devices []ledger.DeviceUsage `json:"devices"`
}

// FinishStep folds what a step used into the job's usage.json and removes the step's folder.
// A job or a step that is not there, or was finished before, is none of its errors.
func FinishStep(dir rundir.Dir, job, step uint32, stepName string) error {
	if !validName(stepName) {
		return fmt.Errorf("finish step %q: not the name of a step", stepName)
	}
	g, err := Read(dir.Grant(job))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finish step %d.%s: %w", job, stepName, err)
	}
	if g.Refusal != "" {
		return nil
	}
	if err := foldStep(dir, g, step, stepName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("finish step %d.%s: %w", job, stepName, err)
	}
	if err := os.RemoveAll(dir.Step(job, stepName)); err != nil {
		return fmt.Errorf("finish step %d.%s: %w", job, stepName, err)
	}
	return nil
}

func foldStep(dir rundir.Dir, g Grant, step uint32, stepName string) error {
	if _, err := os.Lstat(dir.Step(g.Job, stepName)); err != nil {
		return err
	}
	unlock, err := lockSteps(dir, g.Job)
	if err != nil {
		return err
	}
	defer unlock()
	usage, err := CollectUsage(dir, g)
	if err != nil && !errors.Is(err, ledger.ErrLayout) {
		return err
	}
	mine := StepUsage{Step: stepName}
	if page, err := ledger.Read(dir.Ledger(g.Job), g.Job, g.bounds()); err == nil {
		for _, s := range page.Steps {
			if s.Step == step {
				mine.Devices = raise(mine.Devices, s.Devices)
			}
		}
	}
	usage.Steps = slices.DeleteFunc(usage.Steps, func(s StepUsage) bool {
		if s.Step == stepName { // a repeated call must not lower what the first one saw
			mine.Devices = raise(mine.Devices, s.Devices)
		}
		return s.Step == stepName
	})
	usage.Steps = append(usage.Steps, mine)
	usage.Steps = usage.Steps[max(0, len(usage.Steps)-maxUsageSteps):]
	data, err := json.Marshal(usage)
	if err != nil {
		return err
	}
	return trusted.WriteFile(dir.Usage(g.Job), append(data, '\n'), 0o644)
}

// CollectUsage returns what is known of a job's use: usage.json raised by what the ledger says
// now. It always returns a usage with one entry for each slice; the error says which of the two
// could not be believed.
func CollectUsage(dir rundir.Dir, g Grant) (Usage, error) {
	usage := Usage{Version: usageVersion, Job: g.Job, Restart: g.Restart, Devices: make([]ledger.DeviceUsage, len(g.Slices))}
	folded, foldedErr := readUsage(dir.Usage(g.Job))
	if foldedErr == nil && folded.Job == g.Job && folded.Restart == g.Restart {
		usage.Devices = raise(usage.Devices, folded.Devices)
		usage.Steps = folded.Steps
	}
	if errors.Is(foldedErr, fs.ErrNotExist) {
		foldedErr = nil
	}
	page, ledgerErr := ledger.Read(dir.Ledger(g.Job), g.Job, g.bounds())
	if ledgerErr == nil {
		usage.Devices = raise(usage.Devices, page.Devices)
		for i := range page.Devices {
			usage.Devices[i].UsedBytes = page.Devices[i].UsedBytes
		}
	}
	return usage, errors.Join(foldedErr, ledgerErr)
}

func readUsage(path string) (Usage, error) {
	data, err := trusted.ReadFile(path, maxUsageBytes)
	if err != nil {
		return Usage{}, err
	}
	var usage Usage
	if err := json.Unmarshal(data, &usage); err != nil {
		return Usage{}, fmt.Errorf("read usage %s: %w", path, err)
	}
	if usage.Version != usageVersion {
		return Usage{}, fmt.Errorf("read usage %s: version %d, want %d", path, usage.Version, usageVersion)
	}
	return usage, nil
}

// raise returns the larger peaks, counts and times of both. More entries in b than in a are dropped,
// unless a is empty.
func raise(a, b []ledger.DeviceUsage) []ledger.DeviceUsage {
	if a == nil {
		return slices.Clone(b)
	}
	for i := range min(len(a), len(b)) {
		a[i].PeakBytes = max(a[i].PeakBytes, b[i].PeakBytes)
		a[i].Refusals = max(a[i].Refusals, b[i].Refusals)
		a[i].BusyNs = max(a[i].BusyNs, b[i].BusyNs)
		a[i].WaitedNs = max(a[i].WaitedNs, b[i].WaitedNs)
	}
	return a
}

// lockSteps serialises the ends of a job's steps, and the starts of those that look at each other.
// Waiting is bounded, because slurmstepd waits too.
func lockSteps(dir rundir.Dir, job uint32) (unlock func(), err error) {
	path := dir.Usage(job) + ".lock"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	for deadline := time.Now().Add(usageLockWait); ; time.Sleep(2 * time.Millisecond) {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { unix.Close(fd) }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			unix.Close(fd)
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
	}
}
