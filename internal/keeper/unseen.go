// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// withCaps are the GPUs on which a slice has a cap. A slice that is alone and has no cap takes no time from others.
func (k *keeper) withCaps() (uuids []device.UUID) {
	for uuid, g := range k.gpus {
		if slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.capState.hold != nil }) {
			uuids = append(uuids, uuid)
		}
	}
	slices.Sort(uuids)
	return uuids
}

func (k *keeper) mayBeUnseen() {
	switch {
	case len(k.withCaps()) == 0:
		k.unseenAt = 0
	case k.unseenAt == 0:
		k.unseenAt = k.now + unseenEach
	}
}

func (k *keeper) askUnseen() {
	if k.unseenAt > 0 && k.now >= k.unseenAt {
		k.unseenAt = k.now + unseenEach
		k.samples.ask(k.withCaps(), nil, k.now)
	}
}

// seeUnseen is true where it has found a program, which is looked at from now on.
func (k *keeper) seeUnseen(s sampled) bool {
	for uuid, g := range k.gpus {
		k.seeHolders(g, s.holders[uuid], s.orphans[uuid])
	}
	k.rest()
	return k.lookAt > 0
}

// isUnseen says that a slice with a cap has a program whose groups are not known.
func (g *gpu) isUnseen() bool {
	return slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.hidden && t.capState.hold != nil })
}

// stillHas says that the driver has a group that its page does not name any more: a cap holds for it all the same.
func (k *keeper) stillHas(m *group) bool {
	if m.of.capState.hold == nil || m.of.gone || m.owner.Ended() || !k.namesOf(m.owner.Job).Afford(k.now) {
		return false
	}
	_, err := m.owner.Slice(m.handles)
	return err == nil
}
