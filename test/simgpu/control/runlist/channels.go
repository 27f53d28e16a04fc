// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package runlist

import "slices"

// Channel is where work is put in.
type Channel struct {
	ID    uint32 // of the GPU: what records and the driver name
	Group *Group
	offs  int  // how often it was taken off and not let on again
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

// Disable takes a channel off or lets it on again; what was taken off twice is let on twice. What runs stays until it leaves if only the scheduling
// is meant; rewind throws away what waits.
func (r *Runlist) Disable(off, only, rewind bool, c *Channel) {
	if !off {
		c.offs, c.stays = max(0, c.offs-1), false
		return
	}
	c.offs, c.stays = c.offs+1, only && c.Group == r.on
	if rewind {
		c.Group.queue = slices.DeleteFunc(c.Group.queue, func(w *Work) bool { return w.Channel == c && !w.isBegun() })
	}
}
