// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// busy is what the simulated GPU did for a process.
func busy(t *testing.T, d *Driver, pid int) time.Duration {
	t.Helper()
	arg := struct {
		index, pid         uint32
		active, at, busyNS uint64
	}{pid: uint32(pid)}
	if err := private(d.file, 4, &arg); err != nil {
		t.Fatal(err)
	}
	return time.Duration(arg.busyNS)
}

// device is the simulated driver's, of two GPUs: the first is the driver's second.
func device(t *testing.T, conf string) *Driver {
	t.Helper()
	if known, _ := os.ReadFile("/proc/filesystems"); os.Getuid() != 0 || !strings.Contains(string(known), "\tfuse\n") {
		t.Skip("the simulated control device needs root and a kernel with FUSE")
	}
	program, err := filepath.Abs("../../build/sim/simgpu-control")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("the simulated control device is not built: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "simgpu.conf"), []byte("devices=2\n"+conf), 0o644); err != nil {
		t.Fatal(err)
	}
	if line := started(t, exec.Command(program, dir)); line != "ready" {
		t.Skipf("no FUSE file system can be mounted here: %q", line)
	}
	d, err := Open(filepath.Join(dir, "control/nvidiactl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func firstGPU(t *testing.T, d *Driver) *GPU {
	t.Helper()
	g, err := d.GPU("0000:10:00.0", "/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func TestAGPUIsFoundByItsAddress(t *testing.T) {
	d := device(t, "")
	before := open(t)
	for address, want := range map[string]uint32{"00000000:10:00.0": 1, "0000:1f:00.0": 0} {
		g, err := d.GPU(address, "/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		if got := g.DeviceInstance(); got != want {
			t.Errorf("%s is the driver's %d, want %d", address, got, want)
		}
		g.Close()
	}
	for address, path := range map[string]string{"0000:11:00.0": "/dev/null", "0000:10:00.0": "/nowhere", "10": "/dev/null"} {
		if _, err := d.GPU(address, path); err == nil {
			t.Errorf("there is a GPU at %s with %s", address, path)
		}
	}
	sameOpen(t, before, "after GPUs were opened and closed")
}

func TestASliceIsSetThroughTheOwnersOpenFile(t *testing.T) {
	d := device(t, "")
	a, b := newTenant(t, d), newTenant(t, d)
	before := open(t)
	if err := a.owner.SetTimeSlice(a.group, 3*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	slice := func(want time.Duration) {
		t.Helper()
		if got, err := a.owner.Slice(a.group); err != nil || got != want {
			t.Errorf("a slice of %s, %v; want %s", got, err, want)
		}
	}
	slice(3 * time.Millisecond)
	if err := a.owner.Verify(a.group); err != nil {
		t.Error(err)
	}
	if _, err := a.owner.Saves(a.group); err != nil {
		t.Error(err)
	}

	// Handles of one with the open file of another, and root's own, and a second opening of the owner's.
	mixed := a.group
	mixed.FD = b.group.FD
	again, err := openFile(d.path)
	if err != nil {
		t.Fatal(err)
	}
	refusals := map[string]error{
		"set by a neighbour":         b.owner.SetTimeSlice(mixed, time.Second),
		"verified as of a neighbour": b.owner.Verify(mixed),
		"set by root's own file":     d.file.SetTimeSlice(a.group, time.Second),
		"set by another opening":     File(again).SetTimeSlice(a.group, time.Second),
	}
	_, refusals["saves, asked by a neighbour"] = b.owner.Saves(mixed)
	unix.Close(again)
	other := a.group
	other.Handle++ // a channel of its own
	refusals["set for what is no group"] = a.owner.SetTimeSlice(other, time.Second)
	for what, err := range refusals {
		if !errors.Is(err, ErrNotTheirs) {
			t.Errorf("%s: %v", what, err)
		}
	}
	slice(3 * time.Millisecond)
	sameOpen(t, before, "after the calls")
}

func TestWhatIsOffDoesNotRun(t *testing.T) {
	d := device(t, "")
	g := firstGPU(t, d)
	a, b, c := newTenant(t, d), newTenant(t, d), newTenant(t, d)
	runs := func(w *tenant, what string) {
		t.Helper()
		had := busy(t, d, w.pid)
		until(t, what, func() bool { return busy(t, d, w.pid) > had+20*time.Millisecond }) // some rounds of all
	}
	runs(a, "the first runs")
	if gone, err := g.Disable(true, a.channels); err != nil || gone != nil {
		t.Fatal(gone, err)
	}
	had := busy(t, d, a.pid)
	runs(b, "the neighbour runs")
	if now := busy(t, d, a.pid); now != had {
		t.Errorf("it had %s while it was off", now-had)
	}
	if gone, err := g.Disable(false, a.channels); err != nil || gone != nil {
		t.Fatal(gone, err)
	}
	runs(a, "it goes on")

	// Some in the list have just ended, and one names what it never had.
	ended, never := Channel{Client: 0xc1dfffff, Handle: 1}, Channel{Client: a.group.Client, Handle: 1}
	gone, err := g.Disable(true, slices.Concat([]Channel{ended}, a.channels, []Channel{never}, b.channels))
	if err != nil || !slices.Equal(gone, []Channel{ended, never}) {
		t.Errorf("gone are %v, %v", gone, err)
	}
	hadA, hadB := busy(t, d, a.pid), busy(t, d, b.pid)
	runs(c, "the third runs")
	if nowA, nowB := busy(t, d, a.pid), busy(t, d, b.pid); nowA != hadA || nowB != hadB {
		t.Errorf("they had %s and %s while they were off", nowA-hadA, nowB-hadB)
	}
	if gone, err := g.Disable(false, slices.Concat(b.channels, []Channel{never, ended}, a.channels)); err != nil || len(gone) != 2 {
		t.Errorf("gone are %v, %v", gone, err)
	}
	runs(a, "the first goes on")
	runs(b, "the second goes on")
}

func TestTheLogHasEachSwitch(t *testing.T) {
	d := device(t, "")
	g := firstGPU(t, d)
	a, b := newTenant(t, d), newTenant(t, d)
	before := open(t)
	began, err := g.ClockNS()
	if err != nil {
		t.Fatal(err)
	}
	l, err := g.OpenLog()
	if err != nil {
		t.Fatal(err)
	}
	var all []Record
	until(t, "a hundred switches", func() bool {
		records, dropped, err := l.Poll(true)
		if err != nil || dropped != 0 {
			t.Fatalf("%d dropped, %v", dropped, err)
		}
		all = append(all, records...)
		if room := le.Uint32(l.header); int(room) != len(all) {
			t.Fatalf("the driver has its room back up to record %d of %d", room, len(all))
		}
		return len(all) >= 100
	})
	now, err := g.ClockNS()
	if err != nil {
		t.Fatal(err)
	}
	starts, on := map[uint32]int{}, map[uint32]bool{}
	for i, r := range all {
		if !r.IsSwitch() || r.Starts() == r.Ends() || r.AtNS < began || r.AtNS > now {
			t.Errorf("%d: %+v, of a log from %d to %d", i, r, began, now)
		}
		if i > 0 && (r.Serial != all[i-1].Serial+1 || r.AtNS < all[i-1].AtNS) {
			t.Errorf("%d: %+v comes after %+v", i, r, all[i-1])
		}
		if r.Starts() {
			starts[r.PID]++
			on[r.Channel] = true
		}
	}
	if len(starts) != 2 || starts[uint32(a.pid)] == 0 || starts[uint32(b.pid)] == 0 {
		t.Errorf("on were %v, want %d and %d", starts, a.pid, b.pid)
	}
	until(t, "one of them is resident, and not in the midst of a switch", func() bool {
		channel, err := g.Resident()
		return err == nil && on[channel]
	})
	l.Close()
	sameOpen(t, before, "after the log was closed")
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || strings.Contains(string(maps), d.path) {
		t.Errorf("the log is still mapped (%v)", err)
	}
}

func TestNothingIsKeptOfWhoIsKilled(t *testing.T) {
	d := device(t, "")
	g := firstGPU(t, d)
	a := newTenant(t, d)
	before := open(t)
	var calls atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // in the midst of calls
		defer close(stopped)
		for a.owner.SetTimeSlice(a.group, time.Millisecond) == nil {
			calls.Add(1)
		}
		<-stop
	}()
	until(t, "calls are made", func() bool { return calls.Load() > 10 })
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Wait(); err == nil {
		t.Fatal("it was not killed")
	}
	until(t, "its client is gone, though who looked at it has not forgotten it", func() bool {
		gone, err := g.Disable(true, a.channels)
		return err == nil && len(gone) == len(a.channels)
	})
	close(stop)
	<-stopped
	if err := a.owner.Verify(a.group); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
	sameOpen(t, before, "after its end")
}

func TestADriverThatRefusesSaysSo(t *testing.T) {
	d := device(t, "control=refuse\n")
	g := firstGPU(t, d)
	a := newTenant(t, d)
	before := open(t)
	_, noLog := g.OpenLog()
	_, notOff := g.Disable(true, a.channels)
	const notSupported = Status(0x56)
	for what, err := range map[string]error{
		"a slice": a.owner.SetTimeSlice(a.group, time.Millisecond), "channels off": notOff, "the log": noLog,
	} {
		var status Status
		if !errors.As(err, &status) || status != notSupported || errors.Is(err, ErrNotTheirs) {
			t.Errorf("%s: %v", what, err)
		}
	}
	sameOpen(t, before, "after refusals")
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || strings.Contains(string(maps), d.path) {
		t.Errorf("memory of a log that was refused is still mapped (%v)", err)
	}
}
