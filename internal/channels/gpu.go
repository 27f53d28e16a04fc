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

// Disable takes channels off the GPU, or lets them on again, by their handles alone: the driver compares no owner in this call, so that whoever
// calls has verified that a tenant's own client has them. Copies to and from the GPU go on. Where the driver refuses a call for several clients'
// channels, each client has a call of its own, so that one which has just ended hinders none.
func (g *GPU) Disable(disable bool, channels []Channel) error {
	err := g.file.Disable(g.handle, g.subdevice, disable, channels)
	var status Status
	if !errors.As(err, &status) {
		return err
	}
	clients := byClient(channels)
	if len(clients) == 1 {
		return err
	}
	var refused []error
	for _, theirs := range clients {
		refused = append(refused, g.file.Disable(g.handle, g.subdevice, disable, theirs))
	}
	return errors.Join(refused...)
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

// Resident is the number of the channel that is on the first graphics engine, idle or not, as Record.Channel. By the headers any user may ask;
// nobody has run this call on a GPU.
func (g *GPU) Resident() (channel uint32, err error) {
	var params residentParams
	if err := Control(g.file, g.handle, g.subdevice, callResident, &params); err != nil {
		return 0, fmt.Errorf("ask for the resident channel: %w", err)
	}
	return params.channel, nil
}
