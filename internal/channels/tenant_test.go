// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
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
	cmd := exec.Command(os.Args[0])
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
