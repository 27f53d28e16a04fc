// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package runlist

import "slices"

// Channel is where work is put in.
type Channel struct {
	ID    uint32 // of the GPU: what records and the driver name
	Group *Group
	off   bool
	stays bool // it is off once its group has left
}

// AddChannel gives a group one more.
func (r *Runlist) AddChannel(g *Group) *Channel {
	c := &Channel{ID: r.nextID, Group: g}
	r.nextID++
	g.Channels = append(g.Channels, c)
	return c
}

// RemoveChannel ends one channel and its work.
func (r *Runlist) RemoveChannel(c *Channel) {
	g := c.Group
	g.queue = slices.DeleteFunc(g.queue, func(w *Work) bool { return w.Channel == c })
	g.Channels = slices.DeleteFunc(g.Channels, func(other *Channel) bool { return other == c })
}

// Disable takes channels off or lets them on again. What runs stays until it leaves if only the scheduling is meant; rewind throws away what
// waits.
func (r *Runlist) Disable(off, only, rewind bool, channels []*Channel) {
	for _, c := range channels {
		c.off, c.stays = off, off && only && c.Group == r.on
		if off && rewind {
			c.Group.queue = slices.DeleteFunc(c.Group.queue, func(w *Work) bool { return w.Channel == c && !w.isBegun() })
		}
	}
}
