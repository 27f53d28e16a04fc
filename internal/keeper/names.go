// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// namesOf is the rest of a job's part of the budget for queries about its groups.
func (k *keeper) namesOf(job uint32) *share.Names {
	if k.names[job] == nil {
		k.names[job] = &share.Names{}
	}
	return k.names[job]
}

// askWaiting goes on with processes whose job had spent its part.
func (k *keeper) askWaiting() {
	if k.askAt == 0 || k.now < k.askAt {
		return
	}
	k.askAt = 0
	for _, o := range k.owners {
		if o.waits {
			k.takeGroups(o)
		}
	}
	for _, g := range k.gpus {
		k.settle(g)
	}
	k.rest()
}

// doubt notes that the driver does not confirm a process's page. A process whose files are gone may be about to end, which takes the driver some 60 ms: the
// driver is asked once more.
func (k *keeper) doubt(o *owner, err error, again bool) {
	switch {
	case errors.Is(err, channels.ErrGone):
		return
	case errors.Is(err, channels.ErrNotTheirs) && (!again || k.now-o.refusedAt < askEach):
		if !again {
			o.refusedAt = k.now
		}
		o.waits, k.askAt = true, k.now+askEach
	default:
		k.once("the channels in a process's page are not its own, or the driver does not confirm them", err)
	}
	o.refused = true
}

// takeGroups gives a process the groups that its page names and the driver confirms.
func (k *keeper) takeGroups(o *owner) {
	here := map[groupKey]bool{}
	again := o.refused
	o.refused, o.waits = false, false
	for _, named := range o.Groups {
		key := groupKey{named.Client, named.Group}
		here[key] = true
		if known := o.groups[key]; known != nil && !known.of.gone {
			known.rename(named)
			continue
		}
		if !k.namesOf(o.Job).Afford(k.now) {
			o.waits, k.askAt = true, k.now+askEach
			continue
		}
		g, t := k.placeOf(o, named)
		if t == nil {
			continue // of a GPU that is not kept, or of which the job has no slice
		}
		k.heart.beat(time.Now())
		handles := channels.Group{FD: int(named.FD), Client: named.Client, Subdevice: named.Subdevice, Handle: named.Group}
		if _, err := o.Slice(handles); err != nil && o.Ended() { // its files go before it does
			continue
		} else if err != nil {
			k.doubt(o, err, again)
			continue
		}
		if g.Refused {
			k.tryAgain(g, named)
			continue
		}
		member := &group{owner: o, of: t, handles: handles, isNew: true, verified: k.now}
		member.rename(named)
		if time.Duration(o.StartTicks)*ledger.Tick < k.began { // an earlier vgpud may have put it off, and its record be lost
			g.lost = append(g.lost, member.channels...)
		}
		if len(o.groups) == 0 && k.now-k.began >= startsFor { // a process that is there when vgpud begins has begun before
			o.startsTo = k.now + startsFor
		}
		o.groups[key] = member
		o.sightOn(g, t, k.now).seen.Made++
		t.groups = append(t.groups, member)
		g.planned = 0
	}
	for key, member := range o.groups {
		if !here[key] && !k.stillHas(member) {
			k.remove(member)
			delete(o.groups, key)
		}
	}
}
