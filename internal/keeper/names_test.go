// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// names has process 103, of job 4, name as many groups on its page, from this client on.
func (m *machine) names(first, count int) {
	p := Process{Process: audit.Process{PID: 103, StartTicks: m.start(103)}, Job: 4}
	for i := range count {
		p.Groups = append(p.Groups, ledger.Group{Client: uint32(first + i), Device: 1, Group: 1, Engine: 1, FD: 9, Subdevice: 2, ChannelCount: 1, Channels: []uint32{3}})
	}
	m.node.Processes = append(m.node.Processes[:3:3], p)
	m.take()
}

// Whoever names what is not there, again and again, spends what his own job may, and those who take turns go on.
func TestNamesWithoutEndHinderNobody(t *testing.T) {
	m := played(t, []int{20, 30, 40, 10}, timeslices.Load{Work: ms, Host: ms}, always(ms), always(ms))
	m.members(0, 1, 2)
	m.play(8 * time.Second)
	if len(m.k.gpus[uuid].turns.sets) == 0 {
		t.Fatal("nobody takes turns")
	}
	before := m.calls["asked"]
	for look := range 500 {
		m.names(5000+32*look, 32)
		m.play(20 * ms)
	}
	for second := range 5 {
		for i, had := range m.had(time.Second) {
			if had < 10 {
				t.Errorf("group %d had %.1f %% of second %d afterwards", i, had, second)
			}
		}
	}
	if asked := m.calls["asked"] - before; asked > 300 {
		t.Errorf("the driver was asked %d times in ten seconds", asked)
	}
}

// Whom its job has nothing left for is asked for later.
func TestWhoHasToWaitIsAskedForLater(t *testing.T) {
	m := played(t, []int{30, 30, 30, 10}, always(ms), always(ms), always(ms), always(ms))
	m.members(0, 1, 2)
	m.names(5000, 200)
	m.names(1003, 1)
	if m.gpu.Groups[3].Slice != 2*ms {
		t.Fatal("its job may have the driver be asked for 200 groups")
	}
	m.play(2 * time.Second)
	if m.gpu.Groups[3].Slice == 2*ms {
		t.Error("its slice is still the driver's own")
	}
}
