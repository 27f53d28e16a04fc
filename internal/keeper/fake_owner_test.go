// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

type fakeOwner struct {
	*machine
	pid int
}

func (o fakeOwner) group(g channels.Group) (*timeslices.Group, error) {
	i := int(g.Client) - 1000
	inherits := func(h Heir) bool { return h.PID == o.pid && slices.Contains(h.FDs, g.FD) }
	if i < 0 || i >= len(o.gpu.Groups) || o.pid == o.stolen || int(o.gpu.Groups[i].PID) != o.pid && !slices.ContainsFunc(o.heirs, inherits) {
		return nil, channels.ErrNotTheirs
	}
	return o.gpu.Groups[i], nil
}

func (o fakeOwner) SetTimeSlice(g channels.Group, slice time.Duration) error {
	o.calls["slice"]++
	if g.Handle == secondGroup {
		o.second = slice.Truncate(us)
		return nil
	}
	group, err := o.group(g)
	if err == nil {
		group.Slice = slice.Truncate(us)
	}
	return err
}

func (o fakeOwner) Slice(g channels.Group) (time.Duration, error) {
	o.calls["asked"]++
	if o.taken[g.Client] {
		return 0, channels.ErrNotTheirs
	}
	if g.Handle == secondGroup {
		return o.second, nil
	}
	group, err := o.group(g)
	if err != nil {
		return 0, err
	}
	if group.Cheat.Sets > 0 {
		return group.Cheat.Sets, nil
	}
	return group.Slice, nil
}

func (o fakeOwner) Saves(g channels.Group) (channels.Saves, error) {
	if g.Handle == secondGroup {
		return channels.Saves{}, nil
	}
	group, err := o.group(g)
	if err != nil {
		return channels.Saves{}, err
	}
	if s := o.saves[g.Client]; s != nil {
		s.Saves, s.Idle = s.Saves+20, s.Idle+20
		return *s, nil
	}
	// Each turn that ended by itself is taken for one that waited until its process was idle: nobody has seen what the driver counts there.
	return channels.Saves{Saves: uint32(group.Turns), Idle: uint32(group.Turns - group.Cuts + group.Kept)}, nil
}

func (o fakeOwner) Ended() bool { return o.killed[o.pid-100] }
func (o fakeOwner) Close()      {}
