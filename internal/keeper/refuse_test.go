// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// leftToTheLibrary is a machine whose GPU the driver refuses vgpud.
func leftToTheLibrary(t *testing.T, percents []int, loads ...timeslices.Load) *machine {
	m := played(t, percents, loads...)
	m.node.GPUs[0].Refused, m.refuses = true, errors.New("the driver does not do it")
	return m
}

// What vgpud cannot keep it counts all the same: one that is at work alone by the GPU's counter.
func TestOneAloneThatIsLeftToTheLibraryIsCounted(t *testing.T) {
	m := leftToTheLibrary(t, []int{30, 70}, timeslices.Load{Work: ms, Host: ms}, always(ms))
	for i := range m.node.GPUs[0].Slices {
		m.node.GPUs[0].Slices[i].Elastic = false
	}
	m.gpu.Groups[1].Off = true
	m.members(0)
	m.play(2 * time.Second)
	before := m.time(1)
	had := m.had(5 * time.Second)
	now := m.time(1)
	near(t, "counted", 100*float64(now.BusyNs-before.BusyNs)/float64(5*time.Second), had[0], 2)
	near(t, "said", float64(now.Percent)/100, had[0], 3)
	if now.UnknownNs != before.UnknownNs || now.Flags != 0 || m.time(2).Flags != ledger.TimeIdle {
		t.Errorf("%+v, beside %+v", now, m.time(2))
	}
	if m.calls["disable"]+m.calls["slice"]+m.calls["asked"] > 0 || len(m.answers) > 0 {
		t.Errorf("the driver was asked: %v, %v", m.calls, m.answers)
	}
	m.members()
	m.play(3 * time.Second)
	if m.k.lookAt != 0 || m.time(1).Flags&ledger.TimeIdle == 0 {
		t.Error("it is looked for work that is not there")
	}
}

// Where the run directory is full nobody is held, as nobody could undo it. The GPU stays vgpud's, and who has more than its cap for that does not cheat.
func TestAFullRunDirectoryLeavesNoGPUToTheLibrary(t *testing.T) {
	m := played(t, []int{30}, always(ms))
	m.node.GPUs[0].Slices[0].Elastic = false
	inTheWay := m.run.VgpudOff() + ".next"
	if err := os.MkdirAll(filepath.Join(inTheWay, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.members(0)
	m.play(5 * time.Second)
	near(t, "with no room", m.had(2 * time.Second)[0], 100, 1)
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	m.play(5 * time.Second)
	near(t, "with room", m.had(10 * time.Second)[0], 30, 1)
	if len(m.answers) > 0 || m.k.gpus[uuid].refusal.asked {
		t.Errorf("it is left to the library: %t; %v", m.k.gpus[uuid].refusal.asked, m.answers)
	}
}

// Of several nobody knows whose time it was, but where one of them does nothing.
func TestOfSeveralThatAreLeftToTheLibrary(t *testing.T) {
	m := leftToTheLibrary(t, []int{30, 70}, always(ms), always(ms))
	m.members(0, 1)
	m.play(2 * time.Second)
	before := m.time(1)
	m.play(2 * time.Second)
	if now := m.time(1); now.BusyNs != before.BusyNs {
		t.Errorf("%s are said to be its", time.Duration(now.BusyNs-before.BusyNs))
	}
	if now := m.time(1); now.Flags&ledger.TimeUncounted == 0 || now.SliceUs != 0 {
		t.Errorf("that nobody counts is not said: %+v", now)
	}
	near(t, "unknown, percent", float64(m.time(1).UnknownNs-before.UnknownNs)/float64(2*time.Second)*100, 100, 12)
	m.gpu.Groups[1].Off = true
	m.play(2 * time.Second)
	before, other := m.time(1), m.time(2)
	had := m.had(4 * time.Second)
	near(t, "counted", 100*float64(m.time(1).BusyNs-before.BusyNs)/float64(4*time.Second), had[0], 2)
	if now := m.time(2); now.BusyNs != other.BusyNs || now.UnknownNs != other.UnknownNs || now.Flags&ledger.TimeUncounted != 0 {
		t.Errorf("%+v, before %+v", now, other)
	}
}

// Where the driver does it again the GPU is vgpud's again, and before that nothing is switched off.
func TestAGPUIsTakenBack(t *testing.T) {
	m := played(t, []int{30}, always(ms))
	m.node.GPUs[0].Refused, m.node.GPUs[0].Slices[0].Elastic = true, false
	m.members(0)
	m.play(time.Second)
	select {
	case gpu := <-m.accepted:
		if gpu != uuid {
			t.Errorf("%s is taken back", gpu)
		}
	case <-time.After(10 * time.Second): // beside the loop
		t.Fatal("the driver does it, and the GPU stays the library's")
	}
	if len(m.offs) != 1 || m.gpu.Groups[0].Off || m.calls["disable"] != 1 {
		t.Errorf("%v, calls %v", m.offs, m.calls)
	}
	before := m.time(1)
	m.node.GPUs[0].Refused = false
	m.take()
	m.play(2 * time.Second)
	near(t, "it had", m.had(2 * time.Second)[0], 30, 1)
	if now := m.time(1); now.UnknownNs-before.UnknownNs > uint64(300*ms) {
		t.Errorf("%s are unknown", time.Duration(now.UnknownNs-before.UnknownNs))
	}
	m.node.GPUs[0].Refused = true // and left again
	m.stays = channels.Status(0x56)
	m.take()
	if m.gpu.Groups[0].Off {
		t.Error("it is off, and the library holds it as well")
	}
	m.recordIs(false)
	m.play(time.Second)
	before = m.time(1)
	near(t, "counted of it", m.had(2 * time.Second)[0], 100, 2)
	near(t, "counted", 100*float64(m.time(1).BusyNs-before.BusyNs)/float64(2*time.Second), 100, 2)
}

// A driver that still refuses is asked once, whatever processes begin.
func TestADriverThatRefusesIsAskedOnce(t *testing.T) {
	m := played(t, []int{30}, always(ms), always(ms))
	m.node.GPUs[0].Refused = true
	m.stays, m.sticks = channels.Status(0x56), 100
	m.members(0)
	m.play(time.Second)
	m.members(0, 1)
	m.play(time.Second)
	if len(m.accepted) > 0 || m.calls["disable"] != 1 {
		t.Errorf("it is taken back: %d; calls %v", len(m.accepted), m.calls)
	}
}
