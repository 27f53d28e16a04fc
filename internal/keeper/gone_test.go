// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// Who names a channel that is not there takes turns as the others do, and is asked for it once.
func TestAChannelThatIsNotThereHindersNobody(t *testing.T) {
	m := played(t, []int{20, 30, 50}, timeslices.Load{Work: ms, Host: ms}, always(ms), always(ms))
	m.members(0, 1, 2)
	liar := &m.node.Processes[1].Groups[0]
	liar.Channels, liar.ChannelCount = append(liar.Channels, absent), 3
	m.take()
	m.play(8 * time.Second)
	had := m.had(6 * time.Second)
	for i, want := range []float64{20.2, 27.1, 44.9} {
		near(t, "with turns", had[i], want, 3)
	}
	if m.calls["absent"] != 1 {
		t.Errorf("what is not there was tried %d times", m.calls["absent"])
	}
}
