// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

const pid = 7

// without is a tenant and a log of no GPU: the clock says 0, so that only what has ended counts.
func without() (*switchLog, *tenant) {
	return &switchLog{turns: newTurns(0)},
		&tenant{cmd: &exec.Cmd{Process: &os.Process{Pid: pid}}, owned: newOwned(pid, nil)}
}

func near(got, want float64) bool { return math.Abs(got-want) < 1e-9 }

func TestWhatIsUsedIsResidentLessItsTurns(t *testing.T) {
	l, w := without()
	f := newFollower(l, []float64{1}, []*tenant{w})
	if w.sliceUS == 0 || f.sliceCalls != 1 {
		t.Errorf("slice of %d us after %d calls", w.sliceUS, f.sliceCalls)
	}
	had := func(residentMS int64, turns int, lengthsUS ...int) {
		l.ResidentNS[pid] += residentMS * 1e6
		l.count[pid] += turns
		l.lengthsUS[pid] = append(l.lengthsUS[pid], lengthsUS...)
	}
	w.sliceUS = 10000
	had(100, 10, 9800, 10100, 3000)
	if used, cut := f.look(0, 0.5); !cut || !near(used, (0.1-10*cutSeconds)/0.5) {
		t.Errorf("used %v, cut %v", used, cut)
	}
	had(20, 10, 9800, 1000, 3000)
	if used, cut := f.look(0, 0.5); cut || !near(used, (0.02-10*leftSeconds)/0.5) {
		t.Errorf("used %v, cut %v", used, cut)
	}
	had(-1, 1, 2000) // the end was older than the clock at the look before
	if used, _ := f.look(0, 0.5); used != 0 {
		t.Errorf("used %v of less than nothing", used)
	}
	had(4, 0)
	if used, cut := f.look(0, 0.5); !cut || !near(used, 0.004/0.5) {
		t.Errorf("used %v, cut %v after no turn", used, cut)
	}
}

func TestACapIsOffWhileItsCreditIsGone(t *testing.T) {
	l, w := without()
	c := &capByLog{log: l, w: w, credit: timeslices.Credit{Share: 0.3}, at: time.Now()}
	l.ResidentNS[pid] = int64(time.Second)
	c.step()
	if !c.isOff || c.calls != 1 {
		t.Errorf("off %v after %d calls", c.isOff, c.calls)
	}
	l.ResidentNS[pid] -= int64(2 * time.Second)
	c.step()
	if c.isOff || c.calls != 2 {
		t.Errorf("off %v after %d calls", c.isOff, c.calls)
	}
}

func TestWhatTheKernelRefusesIsNegative(t *testing.T) {
	if got := statusOf(channels.File(-1).SetTimeSlice(channels.Group{}, time.Millisecond)); got != -int(syscall.EBADF) {
		t.Errorf("status %d", got)
	}
	if fd := newOwned(1<<30, nil).fd(0); fd >= 0 {
		t.Errorf("a descriptor %d of a process that is not there", fd)
	}
}
