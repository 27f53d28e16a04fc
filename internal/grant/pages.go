// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// LayoutProgram stands beside the interposer, and reads and writes the pages that it knows.
const LayoutProgram = "vgpu-layout"

const (
	// layoutTime is more than vgpu-layout takes on a node that swaps.
	layoutTime = 20 * time.Second
	// maxAnswerBytes is more than all slots of a ledger take as text.
	maxAnswerBytes = 8 << 20
)

// ErrForeign is wrapped where the pages of a job are of another build, whose program does not answer.
var ErrForeign = errors.New("pages of another build")

// Pages reads and writes the limits pages and the ledger of one job. Where they are laid out otherwise than this program
// knows, the program of the build does it that the job was started with.
type Pages struct {
	layout  uint32
	program string
}

// Pages are those of the job.
func (g Grant) Pages() Pages {
	return Pages{layout: g.Layout, program: filepath.Join(filepath.Dir(g.Library), LayoutProgram)}
}

// firstWithPages is the first layout whose library finds its job's pages in a folder of their own. Those before look into one of all jobs.
const firstWithPages = 8

// IsOlder says that the job was started by a build whose library looks for its pages elsewhere.
func (g Grant) IsOlder() bool { return g.Layout != 0 && g.Layout < firstWithPages }

// pagesDir is where the library looks for the job's pages when the step's folder has none.
func (g Grant) pagesDir(dir rundir.Dir) string {
	if g.IsOlder() {
		return dir.Turns()
	}
	return dir.Pages(g.Job)
}

// pagesIn is where it looks for them in the step's folder.
func (g Grant) pagesIn() string {
	if g.IsOlder() {
		return filepath.Join(rundir.TurnsFolder, strconv.FormatUint(uint64(g.Job), 10))
	}
	return rundir.PagesFolder
}

// own: a grant of a release that wrote none was of the only layout that there was for it, and has no program.
func (p Pages) own() bool { return p.layout == ledger.LayoutVersion || p.layout == 0 }

// WriteLimits is ledger.WriteLimits.
func (p Pages) WriteLimits(path string, limits ledger.Limits) error {
	if p.own() {
		return ledger.WriteLimits(path, limits)
	}
	_, err := p.ask(ledger.Ask{Op: ledger.OpWriteLimits, Path: path, Limits: &limits})
	return err
}

// ChangeLimits is ledger.ChangeLimits.
func (p Pages) ChangeLimits(path string, limits ledger.Limits) error {
	if p.own() {
		return ledger.ChangeLimits(path, limits)
	}
	_, err := p.ask(ledger.Ask{Op: ledger.OpChangeLimits, Path: path, Limits: &limits})
	return err
}

// ReadLimits is ledger.ReadLimits.
func (p Pages) ReadLimits(path string) (ledger.Limits, error) {
	if p.own() {
		return ledger.ReadLimits(path)
	}
	answer, err := p.ask(ledger.Ask{Op: ledger.OpReadLimits, Path: path})
	if err != nil || answer.Limits == nil {
		return ledger.Limits{}, err
	}
	return *answer.Limits, nil
}

// Read is ledger.Read. What another program says of a ledger is held to the bounds once more.
func (p Pages) Read(path string, job uint32, bounds ledger.Bounds) (ledger.Usage, error) {
	if p.own() {
		return ledger.Read(path, job, bounds)
	}
	answer, err := p.ask(ledger.Ask{Op: ledger.OpReadUsage, Path: path, Job: job, Bounds: bounds})
	if err != nil || answer.Usage == nil {
		return ledger.Usage{}, err
	}
	return bounds.Hold(*answer.Usage), nil
}

// ReadDevices is ledger.ReadDevices.
func (p Pages) ReadDevices(path string, job uint32, bounds ledger.Bounds) ([]ledger.DeviceUsage, error) {
	if p.own() {
		return ledger.ReadDevices(path, job, bounds)
	}
	usage, err := p.Read(path, job, bounds)
	return usage.Devices, err
}

// ReadSlots is ledger.ReadSlots.
func (p Pages) ReadSlots(path string, job uint32, devices int) ([]ledger.Slot, error) {
	if p.own() {
		return ledger.ReadSlots(path, job, devices)
	}
	answer, err := p.ask(ledger.Ask{Op: ledger.OpReadSlots, Path: path, Job: job, Devices: devices})
	for i := range answer.Slots {
		answer.Slots[i].Bytes = append(answer.Slots[i].Bytes, make([]uint64, devices)...)[:devices]
	}
	return answer.Slots, err
}

// LayoutOf is the layout that such a program knows.
func LayoutOf(program string) (uint32, error) {
	said, err := Pages{program: program}.run(ledger.Ask{})
	var answer ledger.Answer
	if err == nil {
		err = json.Unmarshal(said, &answer)
	}
	if err != nil {
		return 0, fmt.Errorf("ask %s for its layout: %w", program, err)
	}
	return answer.Version, nil
}

func (p Pages) ask(ask ledger.Ask) (answer ledger.Answer, err error) {
	said, err := p.run(ask)
	if err == nil {
		err = json.Unmarshal(said, &answer)
	}
	if err == nil && answer.Version != p.layout {
		err = fmt.Errorf("it has layout %d", answer.Version)
	}
	if err != nil {
		return ledger.Answer{}, fmt.Errorf("%w: layout %d, where this program has %d: %s: %w", ErrForeign, p.layout, ledger.LayoutVersion, p.program, err)
	}
	return answer, answer.Err()
}

func (p Pages) run(ask ledger.Ask) ([]byte, error) {
	if err := TrustProgram(p.program); err != nil {
		return nil, err
	}
	question, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), layoutTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.Stdin = bytes.NewReader(question)
	said := bounded{most: maxAnswerBytes}
	cmd.Stdout = &said
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	return said.Bytes(), err
}

// bounded is a buffer that takes no more than so much.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(data []byte) (int, error) {
	if b.Len()+len(data) > b.most {
		return 0, fmt.Errorf("it says more than %d bytes", b.most)
	}
	return b.Buffer.Write(data)
}
