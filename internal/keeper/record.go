// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Record is vgpud.off: all channels that may be off, and all steps that may be frozen. It is written before the call that does so. The supervisor, or another
// vgpud, undoes all that it names.
type Record struct {
	BootID string   `json:"boot_id"`
	Off    []Off    `json:"off,omitempty"`
	Frozen []Frozen `json:"frozen,omitempty"`
}

// Off are channels of a GPU that may be kept off.
type Off struct {
	GPU      GPU                `json:"gpu"`
	Channels []channels.Channel `json:"channels"`
}

// GPU is a GPU, as the driver finds it.
type GPU struct {
	UUID    device.UUID  `json:"device"`
	Address string       `json:"pci_bus_id"`
	Minor   device.Minor `json:"minor"`
}

// Frozen is a step that may be frozen.
type Frozen struct {
	Job       uint32          `json:"job"`
	Step      string          `json:"step,omitempty"`
	Files     []FreezerFile   `json:"files,omitempty"`
	Processes []audit.Process `json:"processes,omitempty"` // stopped one by one, where there is no freezer
	Until     time.Duration   `json:"until_ns,omitempty"`  // of ledger.TimeNow
}

func (f Frozen) isSame(other Frozen) bool {
	return f.Job == other.Job && f.Step == other.Step && slices.Equal(f.Files, other.Files) && slices.Equal(f.Processes, other.Processes)
}

// FreezerFile is a file of the kernel's that freezes a cgroup, and what thaws it.
type FreezerFile struct {
	File   string `json:"file"`
	Freeze string `json:"freeze"`
	Thaw   string `json:"thaw"`
}

func (r Record) isEmpty() bool { return len(r.Off) == 0 && len(r.Frozen) == 0 }

// Write replaces the record in one step. An empty one goes away.
func (r Record) Write(path string) error {
	if r.isEmpty() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what is off: %w", err)
		}
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write what is off: %w", err)
	}
	if err := replace(path, append(text, '\n')); err != nil {
		return fmt.Errorf("write what is off: %w", err)
	}
	return nil
}

// replace is trusted.WriteFile without a wait for a disk: nothing that is held outlives the node, and the loop must not wait.
func replace(path string, text []byte) error {
	next := path + ".next" // its folder is root's, and one vgpud runs
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// ReadRecord reads the record. A record that is not there, or is of another boot, counts as empty.
func ReadRecord(path, bootID string) (r Record, err error) {
	text, err := trusted.ReadFile(path, maxRecordBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return Record{}, fmt.Errorf("read what is off: %w", err)
	}
	if r.BootID != bootID {
		return Record{}, nil
	}
	return r, nil
}

// Enabler lets channels of a GPU run that may be off.
type Enabler interface {
	Enable(gpu GPU, channels []channels.Channel) error
}

// Undo lets go of all that the record names, and removes the record. Entries that cannot be undone stay, unless their channels or processes are gone.
func Undo(path, bootID string, enabler Enabler) error {
	return undo(path, bootID, enabler, math.MaxInt64)
}

// UndoNow is Undo before another worker begins: steps whose time is not over stay frozen, and that worker thaws them.
func UndoNow(path, bootID string, enabler Enabler) error {
	return undo(path, bootID, enabler, ledger.TimeNow())
}

func undo(path, bootID string, enabler Enabler, now time.Duration) error {
	r, err := ReadRecord(path, bootID)
	if err != nil {
		return err
	}
	left := Record{BootID: bootID}
	for _, step := range r.Frozen { // it takes no driver, which may not answer
		if now < step.Until {
			left.Frozen = append(left.Frozen, step)
		} else if thawErr := step.Thaw(); thawErr != nil {
			err = errors.Join(err, thawErr)
			left.Frozen = append(left.Frozen, step)
		}
	}
	for _, off := range r.Off {
		if onErr := enabler.Enable(off.GPU, off.Channels); onErr != nil {
			err = errors.Join(err, fmt.Errorf("let channels of %s run again: %w", off.GPU.UUID, onErr))
			left.Off = append(left.Off, off)
		}
	}
	return errors.Join(err, left.Write(path))
}
