// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
)

// nvmlWait bounds what a GPU that does not answer can make anybody wait.
const nvmlWait = 10 * time.Second

// giveUp is how long this process has then to say so, before the kernel ends it.
const giveUp = 5 * time.Second

// leave is how long it has for what is left to do without NVML's answer.
const leave = time.Minute

// Driver is this node's NVML. No question to it takes longer than nvmlWait.
type Driver struct{ session discover.Session }

// OpenDriver starts NVML. In a job, NVML is the interposer's: it would answer with the ledger's own numbers.
func OpenDriver(cfg config.Config) (Driver, error) {
	if err := outsideOfSlices(cfg); err != nil {
		return Driver{}, err
	}
	return withNVML(func() (Driver, error) {
		lib, err := discover.Library(cfg.NVMLLibrary)
		if err != nil {
			return Driver{}, err
		}
		session, err := discover.Open(lib)
		return Driver{session}, err
	})
}

func outsideOfSlices(cfg config.Config) error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err == nil && bytes.Contains(maps, []byte("/"+filepath.Base(cfg.Library)+"\n")) {
		return errors.New("this is a job with a slice, whose NVML shows what the ledger says")
	}
	return nil
}

// GPUs asks which GPUs there are, and which of them can be used.
func GPUs(cfg config.Config) (device.Inventory, error) {
	if err := outsideOfSlices(cfg); err != nil {
		return device.Inventory{}, err
	}
	return withNVML(func() (device.Inventory, error) {
		lib, err := discover.Library(cfg.NVMLLibrary)
		if err != nil {
			return device.Inventory{}, err
		}
		return discover.Inventory(lib)
	})
}

// Holders asks who holds memory of these GPUs.
func (d Driver) Holders(uuids []device.UUID) (map[device.UUID]discover.Holders, error) {
	return withNVML(func() (map[device.UUID]discover.Holders, error) { return d.session.Holders(uuids), nil })
}

// Close stops NVML.
func (d Driver) Close() {
	_, _ = withNVML(func() (struct{}, error) { d.session.Close(); return struct{}{}, nil }) // it hangs, or has answered
}

func withNVML[T any](ask func() (T, error)) (T, error) {
	said, err := bounded(nvmlWait, giveUp, leave, ask)
	if errors.Is(err, errNoAnswer) {
		err = fmt.Errorf("NVML %w", err)
	}
	return said, err
}

// unanswered takes back the deadline of the last question that had no answer.
var unanswered atomic.Pointer[func()]

// bounded has the kernel end this process if a query takes longer than wait and giveUp. A query without an answer may leave a thread
// that holds the dynamic linker's lock. The process may then hang at its exit: the kernel ends it after leave, unless another query
// comes first.
func bounded[T any](wait, giveUp, leave time.Duration, ask func() (T, error)) (said T, err error) {
	disarm, err := deadline(wait + giveUp)
	if err != nil {
		return said, err
	}
	if before := unanswered.Swap(nil); before != nil {
		(*before)()
	}
	said, err = within(wait, ask)
	if errors.Is(err, errNoAnswer) {
		last, failed := deadline(leave)
		if failed != nil {
			return said, errors.Join(err, failed) // the first deadline stands
		}
		unanswered.Store(&last)
	}
	disarm()
	return said, err
}

var errNoAnswer = errors.New("has not answered")

// within leaves what hangs behind: a call into a driver or a file system that does not answer cannot be ended.
func within[T any](wait time.Duration, ask func() (T, error)) (T, error) {
	type answer struct {
		said T
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		said, err := ask()
		done <- answer{said, err}
	}()
	select {
	case a := <-done:
		return a.said, a.err
	case <-time.After(wait):
		var none T
		return none, fmt.Errorf("%w for %s", errNoAnswer, wait)
	}
}

// SetLimit sets what a cgroup may have of a GPU.
func (d Driver) SetLimit(gpu device.UUID, folder string, hardBytes uint64) error {
	_, err := withNVML(func() (struct{}, error) { return struct{}{}, d.session.SetLimit(gpu, folder, hardBytes) })
	return err
}

// Limit asks what a cgroup may have of a GPU, and has.
func (d Driver) Limit(gpu device.UUID, folder string) (discover.Limit, error) {
	return withNVML(func() (discover.Limit, error) { return d.session.Limit(gpu, folder) })
}
