// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
)

// handle is one of a tenant's channel groups, channels or subdevices, as programs/handles.c wrote it down.
type handle struct {
	kind                           string // group, channel or subdevice
	fd                             int    // of the tenant
	client, parent, object, engine uint32
}

func parseHandles(text string) (all []handle) {
	for line := range strings.SplitSeq(text, "\n") {
		var h handle
		if n, _ := fmt.Sscan(line, &h.kind, &h.fd, &h.client, &h.parent, &h.object, &h.engine); n == 6 {
			all = append(all, h)
		}
	}
	return all
}

func readHandles(path string) []handle {
	text, _ := os.ReadFile(path) // a program that has no GPU yet has none
	return parseHandles(string(text))
}

// owned is what of a process's can be acted on, by copies of its descriptors that are kept until close.
type owned struct {
	pid       int
	groups    []handle // that compute
	channels  []handle // of these groups
	subdevice handle   // of their device
	copies    map[int]int
}

func newOwned(pid int, all []handle) *owned {
	p := &owned{pid: pid, copies: map[int]int{}}
	computes := map[[2]uint32]bool{}
	for _, h := range all {
		if h.kind == "group" && h.engine >= 1 && h.engine <= 8 { // NV2080_ENGINE_TYPE_GR0 and on; copies have groups as well
			p.groups = append(p.groups, h)
			computes[[2]uint32{h.client, h.object}] = true
		}
	}
	for _, h := range all {
		if h.kind == "channel" && computes[[2]uint32{h.client, h.parent}] {
			p.channels = append(p.channels, h)
		}
	}
	// A client has a subdevice of each GPU, and one of another GPU is refused: that of the groups' device.
	for _, h := range all {
		if h.kind == "subdevice" && len(p.channels) > 0 && h.client == p.channels[0].client && h.parent == p.groups[0].parent {
			p.subdevice = h
			break
		}
	}
	return p
}

// fd copies a descriptor of the process; -1: it cannot be had.
func (p *owned) fd(theirs int) int {
	if copied, ok := p.copies[theirs]; ok {
		return copied
	}
	pidfd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return -1
	}
	defer unix.Close(pidfd)
	copied, err := unix.PidfdGetfd(pidfd, theirs, 0)
	if err != nil {
		return -1
	}
	p.copies[theirs] = copied
	return copied
}

func (p *owned) close() {
	for _, fd := range p.copies {
		unix.Close(fd)
	}
	p.copies = map[int]int{}
}

// statusOf is the driver's status, or -errno, as the tables have it.
func statusOf(err error) int {
	var status channels.Status
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &errno):
		return -int(errno)
	}
	panic(err)
}

func asChannels(all []handle) (found []channels.Channel) {
	for _, h := range all {
		found = append(found, channels.Channel{Client: h.client, Handle: h.object})
	}
	return found
}

// disable does it, or enables, in one call, by the descriptor of the process; at most channels.MostChannels.
func (p *owned) disable(disable bool, all []handle) int {
	return statusOf(channels.File(p.fd(p.subdevice.fd)).Disable(p.subdevice.client, p.subdevice.object, disable, asChannels(all)))
}

// off takes the process off the GPU, or lets it on again.
func (p *owned) off(off bool) (worst int) {
	for some := range slices.Chunk(p.channels, channels.MostChannels) {
		if status := p.disable(off, some); status != 0 {
			worst = status
		}
	}
	return worst
}

// ofEachGroup makes a call with a group and the descriptor of its client.
func (p *owned) ofEachGroup(call func(channels.File, channels.Group) error) (worst int) {
	for _, g := range p.groups {
		if status := statusOf(call(channels.File(p.fd(g.fd)), p.group(g))); status != 0 {
			worst = status
		}
	}
	return worst
}

func (p *owned) group(g handle) channels.Group {
	return channels.Group{FD: g.fd, Client: g.client, Subdevice: p.subdevice.object, Handle: g.object}
}

func (p *owned) slice(us int) int {
	return p.ofEachGroup(func(f channels.File, g channels.Group) error {
		return f.SetTimeSlice(g, time.Duration(us)*time.Microsecond)
	})
}

// Calls that are tried here and made nowhere else, with what they take, as in internal/channels.
const (
	callSetPreemption = 0x20801210 // NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE
	callInterleave    = 0xa06c0107 // NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL
)

// interleaveParams is NVA06C_CTRL_INTERLEAVE_LEVEL_PARAMS.
type interleaveParams struct{ level uint32 }

// preemptionParams is NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS; compute 0 waits for idle.
//
//lint:ignore U1000 the driver reads the fields that are not named here
type preemptionParams struct {
	flags, group, graphics, compute uint32
	routeFlags, _                   uint32
	route                           uint64
}

// setsCompute says that preemptionParams.compute counts.
const setsCompute = 1

func (p *owned) interleave(level uint32) int {
	return p.ofEachGroup(func(f channels.File, g channels.Group) error {
		return channels.Control(f, g.Client, g.Handle, callInterleave, &interleaveParams{level})
	})
}

// saves says how the first groups were cut.
func (p *owned) saves() string {
	var said []string
	for _, g := range p.groups[:min(2, len(p.groups))] {
		s, err := channels.File(p.fd(p.subdevice.fd)).Saves(p.group(g))
		said = append(said, fmt.Sprintf("[status %#x saves %d restores %d: when idle %d, between blocks %d, in a kernel %d]",
			statusOf(err), s.Saves, s.Restores, s.Idle, s.Blocks, s.InKernel))
	}
	return strings.Join(said, " ")
}

// waitForIdle sets what a switch away from the groups waits for: that their kernels end. It gives each status.
func (p *owned) waitForIdle() string {
	said := ""
	for _, g := range p.groups {
		said += fmt.Sprintf(" %#x", statusOf(channels.Control(channels.File(p.fd(p.subdevice.fd)), p.subdevice.client, p.subdevice.object, callSetPreemption,
			&preemptionParams{flags: setsCompute, group: g.object})))
	}
	return strings.TrimSpace(said)
}
