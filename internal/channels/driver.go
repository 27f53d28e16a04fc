// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package channels makes the calls of the NVIDIA driver's control device that keep shares of a GPU from outside the programs that use it: time
// slices of their channel groups, channels off and on, the log of who was on. Numbers and structures are those of the driver's open kernel modules;
// docs/verified/time-from-outside.md says how they were tried. Handles of processes are a stranger's word.
package channels

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The errors that callers tell apart, besides a Status.
var (
	ErrGone      = errors.New("the process has ended")
	ErrForbidden = errors.New("the kernel forbids to copy a descriptor of the process: CAP_SYS_PTRACE is missing, or kernel.yama.ptrace_scope is 3")
	ErrNoCopies  = errors.New("this kernel copies no descriptor of a process: pidfd_getfd came with Linux 5.6")
	ErrNotTheirs = errors.New("the handles are not of the process, or not any more")
)

// Driver is the driver's control device.
type Driver struct {
	path string
	is   identity
	client
}

// client is one of root's own. All that it makes goes away when its file is closed.
type client struct {
	file   File
	handle uint32
}

// Open makes a client of the control device, which is /dev/nvidiactl.
func Open(controlPath string) (*Driver, error) {
	c, err := newClient(controlPath)
	if err != nil {
		return nil, err
	}
	is, err := identify(int(c.file), "")
	if err != nil {
		c.close()
		return nil, fmt.Errorf("look at %s: %w", controlPath, err)
	}
	return &Driver{path: controlPath, is: is, client: c}, nil
}

// Close ends the client. GPUs, logs and owners have files of their own.
func (d *Driver) Close() { d.close() }

func newClient(path string) (client, error) {
	file, err := openFile(path)
	if err != nil {
		return client{}, err
	}
	c := client{file: File(file)}
	if c.handle, err = alloc[struct{}](c.file, 0, 0, classClient, nil); err != nil {
		c.close()
		return client{}, fmt.Errorf("make a client of %s: %w", path, err)
	}
	return c, nil
}

func (c client) close() { unix.Close(int(c.file)) }

func openFile(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// subdevice makes that of the GPU which the driver counts so.
func (c client) subdevice(instance uint32) (uint32, error) {
	device, err := alloc(c.file, c.handle, c.handle, classDevice, &deviceParams{instance: instance})
	if err != nil {
		return 0, fmt.Errorf("make a device of the driver's GPU %d: %w", instance, err)
	}
	subdevice, err := alloc(c.file, c.handle, device, classSubdevice, &subdeviceParams{})
	if err != nil {
		return 0, fmt.Errorf("make a subdevice of the driver's GPU %d: %w", instance, err)
	}
	return subdevice, nil
}

// instance is how the driver counts the GPU, found by its address: its own order is neither NVML's nor that of /dev.
func (c client) instance(address string) (uint32, error) {
	wanted, err := parseAddress(address)
	if err != nil {
		return 0, err
	}
	var attached attachedParams
	if err := Control(c.file, c.handle, c.handle, callAttachedIDs, &attached); err != nil {
		return 0, fmt.Errorf("ask for the driver's GPUs: %w", err)
	}
	for _, id := range attached.ids {
		at := pciInfoParams{id: id}
		if id == noGPU || Control(c.file, c.handle, c.handle, callPCIInfo, &at) != nil || !at.same(wanted) {
			continue
		}
		info := idInfoParams{id: id}
		if err := Control(c.file, c.handle, c.handle, callIDInfo, &info); err != nil {
			return 0, fmt.Errorf("ask for the number of the driver's GPU %#x: %w", id, err)
		}
		return info.deviceInstance, nil
	}
	return 0, fmt.Errorf("the driver has no GPU at %s", address)
}

func (p pciInfoParams) same(q pciInfoParams) bool {
	return p.domain == q.domain && p.bus == q.bus && p.slot == q.slot
}

// parseAddress takes DOMAIN:BUS:SLOT.FUNCTION, in hexadecimal, as NVML and lspci -D print it.
func parseAddress(address string) (p pciInfoParams, err error) {
	parts := strings.Split(strings.TrimSuffix(address, ".0"), ":")
	if len(parts) == 3 {
		domain, err1 := strconv.ParseUint(parts[0], 16, 32)
		bus, err2 := strconv.ParseUint(parts[1], 16, 8)
		slot, err3 := strconv.ParseUint(parts[2], 16, 5)
		if errors.Join(err1, err2, err3) == nil {
			return pciInfoParams{domain: uint32(domain), bus: uint16(bus), slot: uint16(slot)}, nil
		}
	}
	return p, fmt.Errorf("%q is no PCI address of a GPU: it should look like 0000:3b:00.0", address)
}
