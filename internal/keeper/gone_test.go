// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

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

// Whoever ends while he is looked at is no fault of the node's.
func TestWhoEndsIsNoError(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	var log strings.Builder
	m.k.Log = hclog.New(&hclog.LoggerOptions{Output: &log})
	m.members(0, 1)
	m.play(time.Second)
	m.k.Step = func(Process, bool) (Frozen, error) {
		m.killed[0], m.k.StartOf = true, func(int) (uint64, bool) { return 0, false }
		return Frozen{}, errors.New("it has ended")
	}
	m.gpu.Groups[0].Cheat.Sets = time.Second
	m.until(t, 5*time.Second, func() bool { return strings.Contains(log.String(), "gets around") })
	if !strings.Contains(log.String(), "and has ended") {
		t.Errorf("the log does not say that a cheat has ended:\n%s", &log)
	}
	m.play(time.Second)
	m.stolen = 100 // its files go first
	m.members(0, 1)
	m.play(time.Second)
	if strings.Contains(log.String(), "[ERROR]") {
		t.Errorf("the log has\n%s", &log)
	}
	m.killed[0] = false
	m.members(0, 1)
	if strings.Contains(log.String(), "[ERROR]") {
		t.Errorf("of one whose files are gone, and who may be about to end, the log has\n%s", &log)
	}
	m.play(time.Second)
	if !strings.Contains(log.String(), "[ERROR]") {
		t.Error("the log does not say that a process that is there names what is not its own")
	}
}
