// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
)

// controlDevice is the name of the driver's control device in a folder of device files.
const controlDevice = "nvidiactl"

// driver is the real one.
type driver struct {
	*channels.Driver
	deviceDir string
}

// OpenDriver opens the control device of a folder of device files, which is root's: a link in it is root's own.
func OpenDriver(deviceDir string) (Driver, error) {
	path, err := controlPath(deviceDir)
	if err != nil {
		return nil, fmt.Errorf("open the driver: %w", err)
	}
	d, err := channels.Open(path)
	if err != nil {
		return nil, err
	}
	return driver{d, deviceDir}, nil
}

func controlPath(deviceDir string) (string, error) {
	return filepath.EvalSymlinks(filepath.Join(deviceDir, controlDevice))
}

func (d driver) GPU(gpu GPU) (Device, error) {
	g, err := d.Driver.GPU(gpu.Address, filepath.Join(d.deviceDir, "nvidia"+strconv.Itoa(int(gpu.Minor))))
	if err != nil {
		return nil, err
	}
	return dev{g}, nil
}

func (d driver) Owner(pid int) (Owner, error) { return d.Driver.Owner(pid) }

type dev struct{ *channels.GPU }

func (d dev) OpenLog() (Log, error) { return d.GPU.OpenLog() }

// enabling opens the driver for one call: a process that only undoes keeps nothing open.
type enabling struct{ open func() (Driver, error) }

// NewEnabler is for a process that only lets channels run.
func NewEnabler(open func() (Driver, error)) Enabler { return enabling{open} }

func (e enabling) Enable(gpu GPU, of []channels.Channel) error {
	d, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	g, err := d.GPU(gpu)
	if err != nil {
		return err
	}
	defer g.Close()
	return enable(g, of)
}

// enable lets channels run. Channels that are gone need no call.
func enable(g Device, of []channels.Channel) error {
	var left []error
	for some := range slices.Chunk(of, channels.MostChannels) {
		if _, err := g.Disable(false, some); err != nil {
			left = append(left, err)
		}
	}
	return errors.Join(left...)
}
