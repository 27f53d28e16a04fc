// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tenantOf makes this program a process that has a group with work for some seconds. It names its handles, and waits.
const tenantOf = "CHANNELS_TENANT_OF"

func TestMain(m *testing.M) {
	if path := os.Getenv(tenantOf); path != "" {
		if err := playTenant(path); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

const channelsOfTenant = 8

func playTenant(path string) error {
	c, err := newClient(path)
	if err != nil {
		return err
	}
	device, err := alloc(c.file, c.handle, c.handle, classDevice, &deviceParams{instance: 1})
	if err != nil {
		return err
	}
	subdevice, err := alloc(c.file, c.handle, device, classSubdevice, &subdeviceParams{})
	if err != nil {
		return err
	}
	const classGroup, classChannel = 0xa06c, 0xc86f
	group, err := alloc(c.file, c.handle, device, classGroup, &struct{ _, _, _, engine, _ uint32 }{engine: 1})
	if err != nil {
		return err
	}
	said := fmt.Sprint(c.file, c.handle, subdevice, group)
	for i := range channelsOfTenant {
		channel, err := alloc[struct{}](c.file, c.handle, group, classChannel, nil)
		if err != nil {
			return err
		}
		said += fmt.Sprint(" ", channel)
		for range 2000 * (1 - min(i, 1)) { // the first has the work
			if err := private(c.file, 1, &struct {
				client, channel uint32
				ns, ticket      uint64
			}{client: c.handle, channel: channel, ns: 2e6}); err != nil {
				return err
			}
		}
	}
	fmt.Println(said)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// private makes a call of the simulated device's own.
func private[T any](f File, number uintptr, arg *T) error {
	request := uintptr(3)<<30 | unsafe.Sizeof(*arg)<<16 | 'S'<<8 | number
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(f), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
		return errno
	}
	return nil
}

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
	if line := started(t, exec.Command(program, dir)); line != "ready" { //nolint:noctx // ends with the test
		t.Skipf("no FUSE file system can be mounted here: %q", line)
	}
	d, err := Open(filepath.Join(dir, "control/nvidiactl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// started is the first line of a program that ends with the test, at SIGTERM.
func started(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(unix.SIGTERM); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Logf("%s: %v", cmd, err)
	}
	return strings.TrimSpace(line)
}

// tenant is a process that has a group with work on the simulated node's first GPU.
type tenant struct {
	cmd      *exec.Cmd
	pid      int
	owner    *Owner
	group    Group
	channels []Channel
}

func newTenant(t *testing.T, d *Driver) *tenant {
	t.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:noctx // ends with the test
	cmd.Env = append(os.Environ(), tenantOf+"="+d.path)
	line := started(t, cmd)
	w := &tenant{cmd: cmd, pid: cmd.Process.Pid, channels: make([]Channel, channelsOfTenant)}
	into := []any{&w.group.FD, &w.group.Client, &w.group.Subdevice, &w.group.Handle}
	for i := range w.channels {
		into = append(into, &w.channels[i].Handle)
	}
	if _, err := fmt.Sscan(line, into...); err != nil {
		t.Fatalf("the tenant said %q: %v", line, err)
	}
	for i := range w.channels {
		w.channels[i].Client = w.group.Client
	}
	w.owner = ownerOf(t, d, w.pid)
	return w
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
	if err := a.owner.SetSlice(a.group, 3*time.Millisecond); err != nil {
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
		"set by a neighbour":         b.owner.SetSlice(mixed, time.Second),
		"verified as of a neighbour": b.owner.Verify(mixed),
		"set by root's own file":     d.file.SetSlice(a.group, time.Second),
		"set by another opening":     File(again).SetSlice(a.group, time.Second),
	}
	_, refusals["saves, asked by a neighbour"] = b.owner.Saves(mixed)
	unix.Close(again)
	other := a.group
	other.Handle++ // a channel of its own
	refusals["set for what is no group"] = a.owner.SetSlice(other, time.Second)
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
	if err := g.Disable(true, a.channels); err != nil {
		t.Fatal(err)
	}
	had := busy(t, d, a.pid)
	runs(b, "the neighbour runs")
	if now := busy(t, d, a.pid); now != had {
		t.Errorf("it had %s while it was off", now-had)
	}
	if err := g.Disable(false, a.channels); err != nil {
		t.Fatal(err)
	}
	runs(a, "it goes on")

	// One in the list has just ended.
	gone := Channel{Client: 0xc1dfffff, Handle: 1}
	if err := g.Disable(true, slices.Concat([]Channel{gone}, a.channels, b.channels)); !errors.Is(err, ErrNotTheirs) {
		t.Errorf("a client that is not there was disabled: %v", err)
	}
	hadA, hadB := busy(t, d, a.pid), busy(t, d, b.pid)
	runs(c, "the third runs")
	if nowA, nowB := busy(t, d, a.pid), busy(t, d, b.pid); nowA != hadA || nowB != hadB {
		t.Errorf("they had %s and %s while they were off", nowA-hadA, nowB-hadB)
	}
	if err := g.Disable(false, slices.Concat(a.channels, []Channel{gone}, b.channels)); !errors.Is(err, ErrNotTheirs) {
		t.Errorf("a client that is not there was enabled: %v", err)
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
		for a.owner.SetSlice(a.group, time.Millisecond) == nil {
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
		return errors.Is(g.Disable(true, a.channels), ErrNotTheirs)
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
	const notSupported = Status(0x56)
	for what, err := range map[string]error{
		"a slice": a.owner.SetSlice(a.group, time.Millisecond), "channels off": g.Disable(true, a.channels), "the log": noLog,
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
