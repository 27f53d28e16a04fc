// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
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

func disabling(disable bool, channels []handle) *disableParams {
	params := &disableParams{count: uint32(len(channels))}
	if disable {
		params.disable = 1
	}
	for i, h := range channels {
		params.clients[i], params.channels[i] = h.client, h.object
	}
	return params
}

// disable does it, or enables, in one call, by the descriptor of the process; at most mostChannels.
func (p *owned) disable(disable bool, channels []handle) int {
	return control(p.fd(p.subdevice.fd), p.subdevice.client, p.subdevice.object, callDisable, disabling(disable, channels))
}

// off takes the process off the GPU, or lets it on again.
func (p *owned) off(off bool) (worst int) {
	for i := 0; i < len(p.channels); i += mostChannels {
		if status := p.disable(off, p.channels[i:min(len(p.channels), i+mostChannels)]); status != 0 {
			worst = status
		}
	}
	return worst
}

func ofEachGroup[T any](p *owned, command uint32, params T) (worst int) {
	for _, g := range p.groups {
		asked := params
		if status := control(p.fd(g.fd), g.client, g.object, command, &asked); status != 0 {
			worst = status
		}
	}
	return worst
}

func (p *owned) slice(us int) int { return ofEachGroup(p, callSlice, sliceParams{uint64(us)}) }

func (p *owned) interleave(level uint32) int {
	return ofEachGroup(p, callInterleave, interleaveParams{level})
}

// saves says how the first groups were cut.
func (p *owned) saves() string {
	var said []string
	for _, g := range p.groups[:min(2, len(p.groups))] {
		s := savesParams{group: g.object}
		status := control(p.fd(p.subdevice.fd), p.subdevice.client, p.subdevice.object, callSaves, &s)
		said = append(said, fmt.Sprintf("[status %#x saves %d restores %d: when idle %d, between blocks %d, in a kernel %d]",
			status, s.saves, s.restores, s.idle, s.blocks, s.instructions))
	}
	return strings.Join(said, " ")
}

// waitForIdle sets what a switch away from the groups waits for: that their kernels end. It gives each status.
func (p *owned) waitForIdle() string {
	said := ""
	for _, g := range p.groups {
		said += fmt.Sprintf(" %#x", control(p.fd(p.subdevice.fd), p.subdevice.client, p.subdevice.object, callSetPreemption,
			&preemptionParams{flags: setsCompute, group: g.object}))
	}
	return strings.TrimSpace(said)
}
