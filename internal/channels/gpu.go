// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// GPU is one that is acted on, by a client of root's own.
type GPU struct {
	driver    *Driver
	device    int // descriptor: while it is open the driver keeps the GPU ready
	instance  uint32
	subdevice uint32
	client
}

// GPU opens the one at a PCI address, whose device file is /dev/nvidiaN.
func (d *Driver) GPU(address, devicePath string) (*GPU, error) {
	instance, err := d.instance(address)
	if err != nil {
		return nil, err
	}
	device, err := openFile(devicePath)
	if err != nil {
		return nil, err
	}
	g := &GPU{driver: d, device: device, instance: instance}
	if g.client, g.subdevice, err = d.subdeviceOf(instance); err != nil {
		unix.Close(device)
		return nil, err
	}
	return g, nil
}

// subdeviceOf makes a client for a subdevice.
func (d *Driver) subdeviceOf(instance uint32) (client, uint32, error) {
	c, err := newClient(d.path)
	if err != nil {
		return client{}, 0, err
	}
	subdevice, err := c.subdevice(instance)
	if err != nil {
		c.close()
		return client{}, 0, err
	}
	return c, subdevice, nil
}

// Close leaves channels as they are. The GPU's log is closed before.
func (g *GPU) Close() {
	g.close()
	unix.Close(g.device)
}

// DeviceInstance is how the driver counts the GPU, as in what processes allocate.
func (g *GPU) DeviceInstance() uint32 { return g.instance }

// mostGone are tried of one client that is to be off. Whoever names more that are not there is not believed in the rest. What is to be on is always
// tried to the end.
const mostGone = 8

// Disable takes channels off the GPU, or lets them on again, by their handles alone: the driver compares no owner in this call, so the
// caller has verified that a tenant's own client has them. Copies to and from the GPU go on. Channels that are gone are given back, and hinder
// none: the driver ends a call at one of them. Where there is an error it is not known what is off.
//
// The driver counts: a channel that is disabled twice has to be enabled twice. A channel that is on may be enabled any number of times
// (docs/verified/time-from-outside.md).
func (g *GPU) Disable(disable bool, channels []Channel) (gone []Channel, err error) {
	try := func(some ...Channel) error { return g.try(disable, some) }
	if err := try(channels...); !errors.Is(err, ErrNotTheirs) {
		return nil, err
	}
	for _, theirs := range byClient(channels) {
		most := len(theirs)
		if disable {
			most = mostGone
		}
		goneHere, err := disableEach(try, theirs, most)
		if err != nil {
			return nil, err
		}
		gone = append(gone, goneHere...)
	}
	return gone, nil
}

// try makes one call. The driver ends one that takes channels off at the first channel that is gone, and those before it are off by then, so that
// the opposite call, which ends there as well, undoes it.
func (g *GPU) try(disable bool, channels []Channel) error {
	err := g.file.Disable(g.handle, g.subdevice, disable, channels)
	if disable && errors.Is(err, ErrNotTheirs) {
		_ = g.file.Disable(g.handle, g.subdevice, false, channels) // it fails where the other did
	}
	return err
}

// disableEach is for the channels of one client, of which some may be gone, but no more than most.
func disableEach(try func(...Channel) error, theirs []Channel, most int) (gone []Channel, err error) {
	if err := try(theirs...); !errors.Is(err, ErrNotTheirs) {
		return nil, err
	}
	for i, one := range theirs {
		switch err := try(one); {
		case errors.Is(err, ErrNotTheirs):
			gone = append(gone, one)
		case err != nil:
			return nil, err
		}
		if len(gone) == most {
			return append(gone, theirs[i+1:]...), nil
		}
	}
	return gone, nil
}

// byClient keeps the order in which clients come.
func byClient(channels []Channel) (all [][]Channel) {
	at := map[uint32]int{}
	for _, c := range channels {
		i, known := at[c.Client]
		if !known {
			i = len(all)
			at[c.Client] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], c)
	}
	return all
}

// ClockNS is the GPU's clock, that of the log's records.
func (g *GPU) ClockNS() (int64, error) {
	var now timeParams
	if err := Control(g.file, g.handle, g.subdevice, callTime, &now); err != nil {
		return 0, fmt.Errorf("ask for the GPU's time: %w", err)
	}
	return int64(now.ns), nil
}

// Resident is the number of the channel that is on the first graphics engine, idle or not, as Record.Channel. Any user may ask.
func (g *GPU) Resident() (channel uint32, err error) {
	var params residentParams
	if err := Control(g.file, g.handle, g.subdevice, callResident, &params); err != nil {
		return 0, fmt.Errorf("ask for the resident channel: %w", err)
	}
	return params.channel, nil
}
