// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// PreloadFile is the name of a step's own ld.so.preload in its folder.
const PreloadFile = "ld.so.preload"

// systemPreload is what the step's ld.so.preload is bound over; its lines are kept.
var systemPreload = "/etc/ld.so.preload"

// EnvVar is one variable for the step's tasks.
type EnvVar struct{ Name, Value string }

// Step is what a step needs to run under its limits.
type Step struct {
	Dir         string         // the step's folder: limits, ledger, ld.so.preload
	PreloadFile string         // its ld.so.preload
	Slices      []StepSlice    // the job's slices in order; only those with Mine are the step's
	MaskMinors  []device.Minor // device nodes that its tasks must not open
	OwnMinors   []device.Minor // … that they may
	Visible     []string       // the same GPUs in CUDA_VISIBLE_DEVICES
	Env         []EnvVar       // to be set, whatever the job set
}

const stepsLockWait = 5 * time.Second

// LockSteps serialises the ends of a job's steps, and the starts of those that look at each other.
// Waiting is bounded, because slurmstepd waits too.
func LockSteps(dir rundir.Dir, job uint32) (*os.File, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stepsLockWait)
	defer cancel()
	return trusted.Lock(ctx, dir.StepsLock(job))
}

// Prepare narrows a job's grant to one step and makes the step's folder. given are the step's GRES on
// this node, nil where they are not known. An error of narrowing is for the user; every other one is
// wrapped with what was being done. A second call for the same step leaves what the first one made.
func Prepare(dir rundir.Dir, g Grant, step uint32, stepName string, req request.Request, given *request.Entitlement) (Step, error) {
	narrowed, policy, err := g.Narrow(req)
	if err != nil {
		return Step{}, err
	}
	if !ValidStepName(stepName) {
		return Step{}, fmt.Errorf("prepare step %q: not the name of a step", stepName)
	}
	own := g.own(req)
	if g.narrowedByGRES(given) {
		lock, err := LockSteps(dir, g.Job)
		if err != nil {
			return Step{}, fmt.Errorf("prepare step %d.%s: %w", g.Job, stepName, err)
		}
		defer lock.Close() // when the limits stand there for the next step to see
		if own, err = g.withinGRES(own, *given, g.usersOfSlices(dir, stepName)); err != nil {
			return Step{}, err
		}
		narrowed = g.clamp(own)
	}
	folder := dir.Step(g.Job, stepName)
	if err := makeStepFolder(dir, g, folder); err != nil {
		return Step{}, fmt.Errorf("prepare step %d.%s: %w", g.Job, stepName, err)
	}
	if err := keepAsked(folder, own); err != nil {
		return Step{}, fmt.Errorf("prepare step %d.%s: %w", g.Job, stepName, err)
	}
	refused := g.refused(dir)
	limits := g.limits(step, stepName, narrowed, policy, refused)
	limits.PagesDir = dir.Pages(g.Job)
	if limits.Ledger, err = ledger.FileOf(dir.Ledger(g.Job)); err != nil {
		return Step{}, fmt.Errorf("prepare step %d.%s: %w", g.Job, stepName, err)
	}
	if err := ledger.WriteLimits(filepath.Join(folder, ledger.LimitsFile), limits); err != nil {
		return Step{}, fmt.Errorf("prepare step %d.%s: %w", g.Job, stepName, err)
	}
	if err := g.catchUp(dir, folder, refused); err != nil {
		return Step{}, fmt.Errorf("prepare step %d.%s: %w", g.Job, stepName, err)
	}
	var visible []string
	var minors []device.Minor
	for _, s := range narrowed {
		if s.Mine {
			visible, minors = append(visible, g.visible(s.Slice, len(visible))), append(minors, s.Minor)
		}
	}
	return Step{
		Dir: folder, PreloadFile: filepath.Join(folder, PreloadFile), Slices: narrowed, MaskMinors: g.maskMinors(narrowed), OwnMinors: minors, Visible: visible,
		Env: []EnvVar{{"CUDA_VISIBLE_DEVICES", strings.Join(visible, ",")}, {"VGPU_STEP_DIR", folder}},
	}, nil
}

// catchUp is for a step whose limits are there: whoever changed the grant, or which GPUs are refused, since they were read may have looked
// for steps before this one was there.
func (g Grant) catchUp(dir rundir.Dir, folder string, refused []device.UUID) error {
	for {
		now, err := Read(dir.Grant(g.Job))
		if err != nil || now.Restart != g.Restart {
			return nil
		}
		refusedNow := now.refused(dir)
		if slices.Equal(now.Slices, g.Slices) && slices.Equal(refusedNow, refused) {
			return nil
		}
		if err := now.changeStep(folder, refusedNow); err != nil {
			return err
		}
		g, refused = now, refusedNow
	}
}

// visible is what CUDA_VISIBLE_DEVICES has for the GPU that is the nth of a step. Where the others are not there it is a number, as with
// Slurm's ConstrainDevices: programs read it as one.
func (g Grant) visible(s device.Slice, n int) string {
	if g.IsStrict() {
		return strconv.Itoa(n)
	}
	return string(s.Device)
}

func (g Grant) limits(step uint32, stepName string, slices []StepSlice, policy request.Policy, refused []device.UUID) ledger.Limits {
	limits := ledger.Limits{Job: g.Job, Step: step, UID: g.UID, Generation: 1,
		JobStep: strconv.FormatUint(uint64(g.Job), 10) + "." + stepName}
	if g.FailOpen {
		limits.Flags |= ledger.FailOpen
	}
	for _, s := range slices {
		limits.Devices = append(limits.Devices, s.limits(refused, policy))
	}
	return limits
}

func (s StepSlice) limits(refused []device.UUID, policy request.Policy) ledger.LimitsDevice {
	d := ledger.LimitsDevice{UUID: s.Device, JobMemBytes: mibBytes(s.MemMiB), DeviceMemBytes: mibBytes(s.GPUMiB),
		SMPercent: uint32(s.StepSM), JobSMPercent: uint32(s.SMPercent), Index: s.Index, Minor: s.Minor, Gated: s.isGated(refused, policy)}
	if s.Mine {
		d.StepMemBytes = mibBytes(s.StepMemMiB)
	}
	return d
}

// makeStepFolder makes all but the limits, which come last: the interposer takes a folder with
// limits for a complete one.
func makeStepFolder(dir rundir.Dir, g Grant, folder string) error {
	if err := mkdirAllOpen(folder, dir.Job(g.Job)); err != nil {
		return err
	}
	if _, err := os.Lstat(dir.Ledger(g.Job)); err != nil {
		return err
	}
	if !g.IsStrict() {
		return linkLedger(dir.Ledger(g.Job), filepath.Join(folder, ledger.LedgerFile))
	}
	// In the step's mount namespace all of the folder's content is in the folder itself.
	if err := linkLedger(filepath.Join(rundir.PagesFolder, ledger.LedgerFile), filepath.Join(folder, ledger.LedgerFile)); err != nil {
		return err
	}
	if err := mkdirAllOpen(filepath.Join(folder, rundir.PagesFolder), folder); err != nil {
		return err
	}
	for _, name := range mountPoints(g) {
		if err := trusted.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			return err
		}
	}
	return trusted.WriteFile(filepath.Join(folder, PreloadFile), preloadLines(), 0o644)
}

// mountPoints are files on which the plugin mounts others.
func mountPoints(g Grant) []string {
	names := []string{LibraryFile}
	for _, guard := range g.Guards {
		if guard.Behind != "" {
			names = append(names, guard.Behind)
		}
	}
	return names
}

// mkdirAllOpen makes folders below base that every user may enter, whatever the umask of slurmstepd is.
func mkdirAllOpen(path, base string) error {
	if path == base {
		return nil
	}
	if err := mkdirAllOpen(filepath.Dir(path), base); err != nil {
		return err
	}
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// linkLedger gives the step a name of its own for the job's ledger.
func linkLedger(ledgerPath, link string) error {
	err := os.Symlink(ledgerPath, link)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if to, err := os.Readlink(link); err == nil && to == ledgerPath {
		return nil
	}
	if err := os.Remove(link); err != nil {
		return err
	}
	return os.Symlink(ledgerPath, link)
}

// preloadLines puts the interposer, where containers find it as well, before what the system preloads already.
func preloadLines() []byte {
	lines := []byte(filepath.Join(rundir.Self, LibraryFile) + "\n")
	if system, err := os.ReadFile(systemPreload); err == nil {
		lines = append(lines, system...)
	}
	return lines
}

// ValidStepName says whether a text can be a step's: "0", "batch".
func ValidStepName(stepName string) bool {
	return stepName != "" && strings.Trim(stepName, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}
