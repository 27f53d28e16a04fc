// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	totalsVersion  = 1
	maxTotalsBytes = 4 << 20
	// maxTotalsSteps bounds usage.json for jobs of very many steps; the job's totals stay exact.
	maxTotalsSteps = 1024
)

// Totals is what a job used on this node, as far as is known: the content of usage.json. It is
// root's own copy, so that a job which wipes its ledger later loses nothing of its record.
type Totals struct {
	Version int                  `json:"version"`
	Job     uint32               `json:"job"`
	Restart int                  `json:"restart"`
	Devices []ledger.DeviceUsage `json:"devices"` // in slice order
	Steps   []StepTotals         `json:"steps"`   // finished steps, oldest first
	// Counted is what vgpud says of the job's slices; LookedNs is 0 of one that it has not looked at.
	Counted []ledger.TimeDevice `json:"-"`
	// Spoiled is why the job's ledger is not one, which its user can bring about; nil: it is one. What root's own files say is known all the same.
	Spoiled error `json:"-"`
}

// StepTotals is what one step used.
type StepTotals struct {
	Step    string               `json:"step"`
	Devices []ledger.DeviceUsage `json:"devices"`
}

// FinishStep folds what a step used into the job's usage.json and ends the step's folder.
// A job or a step that is not there, or was finished before, is none of its errors.
func FinishStep(dir rundir.Dir, job, step uint32, stepName string) error {
	if !grant.ValidStepName(stepName) {
		return fmt.Errorf("finish step %q: not the name of a step", stepName)
	}
	g, err := grant.Read(dir.Grant(job))
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
	if err := grant.EndStep(dir, g, stepName); err != nil {
		return fmt.Errorf("finish step %d.%s: %w", job, stepName, err)
	}
	return nil
}

func foldStep(dir rundir.Dir, g grant.Grant, step uint32, stepName string) error {
	if _, err := os.Lstat(dir.Step(g.Job, stepName)); err != nil {
		return err
	}
	lock, err := grant.LockSteps(dir, g.Job)
	if err != nil {
		return err
	}
	defer lock.Close()
	totals, err := Collect(dir, g)
	if err != nil {
		return err
	}
	mine := StepTotals{Step: stepName}
	if page, err := ledger.Read(dir.Ledger(g.Job), g.Job, g.Bounds()); err == nil {
		for _, s := range page.Steps {
			if s.Step == step {
				mine.Devices = raise(mine.Devices, s.Devices)
			}
		}
	}
	totals.Steps = slices.DeleteFunc(totals.Steps, func(s StepTotals) bool {
		if s.Step == stepName { // a repeated call must not lower what the first one saw
			mine.Devices = raise(mine.Devices, s.Devices)
		}
		return s.Step == stepName
	})
	totals.Steps = append(totals.Steps, mine)
	totals.Steps = totals.Steps[max(0, len(totals.Steps)-maxTotalsSteps):]
	data, err := json.Marshal(totals)
	if err != nil {
		return err
	}
	return trusted.WriteFile(dir.Usage(g.Job), append(data, '\n'), 0o644)
}

// Collect returns what is known of a job's use: usage.json raised by what the ledger says now, and
// vgpud's time page. It always returns totals with one entry for each slice; the error says which of
// them could not be trusted. A ledger that its user has spoiled is no error: it must not hide what vgpud counted.
func Collect(dir rundir.Dir, g grant.Grant) (Totals, error) {
	totals := Totals{Version: totalsVersion, Job: g.Job, Restart: g.Restart, Devices: make([]ledger.DeviceUsage, len(g.Slices))}
	folded, foldedErr := readTotals(dir.Usage(g.Job))
	if foldedErr == nil && folded.Job == g.Job && folded.Restart == g.Restart {
		totals.Devices = raise(totals.Devices, folded.Devices)
		totals.Steps = folded.Steps
	}
	if errors.Is(foldedErr, fs.ErrNotExist) {
		foldedErr = nil
	}
	devices, ledgerErr := ledger.ReadDevices(dir.Ledger(g.Job), g.Job, g.Bounds())
	if ledgerErr == nil {
		totals.Devices = raise(totals.Devices, devices)
	}
	for i := range totals.Devices { // it is of now
		totals.Devices[i].UsedBytes = 0
		if ledgerErr == nil && i < len(devices) {
			totals.Devices[i].UsedBytes = devices[i].UsedBytes
		}
	}
	if errors.Is(ledgerErr, ledger.ErrLayout) {
		totals.Spoiled, ledgerErr = ledgerErr, nil
	}
	raiseByDriver(dir, g, totals.Devices)
	counted, countedErr := Counts(dir, g, devices)
	totals.Counted = counted
	return totals, errors.Join(foldedErr, ledgerErr, countedErr)
}

// Slice is what one slice uses now, where the ledger says it, and what is known of its use so far.
func (t Totals) Slice(i int) (usedMiB *int64, figures Figures) {
	if t.Spoiled == nil {
		usedMiB = new(MiB(t.Devices[i].UsedBytes))
	}
	return usedMiB, FiguresOf(t.Devices[i], t.Counted[i])
}

// raiseByDriver takes in what the driver said of the job where it has a wall: a peak that the job's ledger may have kept to itself.
func raiseByDriver(dir rundir.Dir, g grant.Grant, devices []ledger.DeviceUsage) {
	w, err := grant.ReadWall(dir.Wall(g.Job))
	if err != nil || !w.Of(g) {
		return
	}
	bounds := g.Bounds()
	for i, s := range g.Slices {
		devices[i].PeakBytes = max(devices[i].PeakBytes, min(w.PeakBytes[s.Device], bounds.Bytes[i]))
	}
}

func readTotals(path string) (Totals, error) {
	data, err := trusted.ReadFile(path, maxTotalsBytes)
	if err != nil {
		return Totals{}, err
	}
	var totals Totals
	if err := json.Unmarshal(data, &totals); err != nil {
		return Totals{}, fmt.Errorf("read usage %s: %w", path, err)
	}
	if totals.Version != totalsVersion {
		return Totals{}, fmt.Errorf("read usage %s: version %d, want %d", path, totals.Version, totalsVersion)
	}
	return totals, nil
}

// raise returns the larger figures of both. More entries in b than in a are dropped,
// unless a is empty.
func raise(a, b []ledger.DeviceUsage) []ledger.DeviceUsage {
	if a == nil {
		return slices.Clone(b)
	}
	for i := range min(len(a), len(b)) {
		a[i] = a[i].Max(b[i])
	}
	return a
}
