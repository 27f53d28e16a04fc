// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// undo starts all at once, as each measures its kernel alone.
func (t *trial) undo() {
	a, b := t.start("ms=2"), t.start("ms=2")
	r := t.start("ms=1 host=10 jit=1")
	var kernels []*tenant
	for _, ms := range []int{2, 20, 200} {
		kernels = append(kernels, t.start(fmt.Sprintf("ms=%d depth=2", ms)))
	}
	t.say("both as they are", 2, looking{}, a, b)
	l := openLog(t.gpu)
	defer l.close()
	root := newOwned(a.pid, readHandles(a.handlesFile)) // descriptors of its own, as the first sets its slice by others at the same time
	defer root.close()
	doing := func(period time.Duration, do func()) looking { return looking{log: l, period: period, each: do} }

	end := meanwhile(func(int) { a.slice(1000000) })
	t.say("the first sets 1 s in a loop, nobody undoes it", 2, doing(100*time.Millisecond, func() { b.slice(2000) }), a, b)
	t.say("the first sets 1 s in a loop, root sets 2 ms 50 times a second", 2, doing(every, func() { root.slice(2000) }), a, b)
	end()
	a.slice(2000)
	end = meanwhile(func(int) { a.off(false) })
	t.say("the first enables itself in a loop, root disables it 50 times a second", 2, doing(every, func() { root.off(true) }), a, b)
	end()
	root.off(true)
	t.say("the first is off, no loop", 1, reading(l), a, b)
	root.off(false)
	a.slice(2000)
	t.stop(b)
	t.undoPreemption(l, a, r, kernels)
	t.row("kernel's log", run(5*time.Second, nil, "sh", "-c", "dmesg | grep -iE 'xid|nvrm' | tail -3"))
	t.stop(a)
}

// undoPreemption looks at requests beside kernels of some lengths, before and after their program sets that a switch waits for them. The first
// tenant runs on meanwhile.
func (t *trial) undoPreemption(l *switchLog, a, r *tenant, kernels []*tenant) {
	for _, c := range kernels {
		c.slice(2000)
		t.say("requests beside "+c.load+", as made", 1.5, reading(l), c, r)
		t.row("how it was cut", c.saves())
		t.row("it sets that a switch waits", "status "+c.waitForIdle())
		t.say("requests beside "+c.load+", after that", 1.5, reading(l), c, r)
		t.row("how it was cut", c.saves())
		t.stop(c)
	}
	t.stop(r)
}

// descriptors of a process's that are files of the driver, by name.
func descriptors(pid int) map[string][]int {
	found := map[string][]int{}
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		name, _ := os.Readlink(filepath.Join(folder, entry.Name()))
		var fd int
		if n, _ := fmt.Sscan(entry.Name(), &fd); n == 1 && strings.HasPrefix(name, "/dev/nvidia") {
			found[name] = append(found[name], fd)
		}
	}
	return found
}

func (t *trial) handles() {
	probe := t.start("ms=2")
	t.row("descriptors of a process", fmt.Sprint(descriptors(probe.pid)),
		fmt.Sprintf("its groups' client is %d, its subdevice's %d", probe.groups[0].fd, probe.subdevice.fd))
	t.stop(probe)
	time.Sleep(settling)
	base := t.gpu.UsedMiB()
	device := fmt.Sprintf("/dev/nvidia%d", t.gpu.Minor)
	for _, which := range []string{"none", "the client's", device, "/dev/nvidia-uvm", "other /dev/nvidiactl"} {
		w := t.start("ms=2")
		letGo(w)
		theirs := descriptors(w.pid)
		var chosen []int
		switch which {
		case "the client's":
			chosen = []int{w.groups[0].fd}
		case "other /dev/nvidiactl":
			for _, fd := range theirs["/dev/nvidiactl"] {
				if fd != w.groups[0].fd {
					chosen = append(chosen, fd)
				}
			}
		default:
			chosen = theirs[which]
		}
		t.killCopied(w, which, chosen, base)
	}
	t.sent()
}

// killCopied kills one of whose descriptors copies are kept.
func (t *trial) killCopied(w *tenant, which string, chosen []int, baseMiB uint64) {
	kept := 0
	for _, fd := range chosen {
		if w.fd(fd) >= 0 {
			kept++
		}
	}
	before, began := t.gpu.UsedMiB(), time.Now()
	w.kill()
	reaped := time.Since(began)
	for end := time.Now().Add(time.Second); t.gpu.UsedMiB() != baseMiB && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	after, looked := t.gpu.UsedMiB(), time.Since(began)
	w.close()
	time.Sleep(700 * time.Millisecond)
	t.row(fmt.Sprintf("copy of %s, %d kept", which, kept), fmt.Sprintf("used %d MiB", before),
		fmt.Sprintf("reaped in %.2f s, %.2f s after kill -9 used %d MiB", reaped.Seconds(), looked.Seconds(), after),
		fmt.Sprintf("closed: %d MiB", t.gpu.UsedMiB()))
	t.forget(w)
}

// received are the descriptors that a process sends, by its own numbers.
func received(from *net.UnixListener) map[int]int {
	got := map[int]int{}
	c, err := from.AcceptUnix()
	if err != nil {
		return got
	}
	defer c.Close()
	for {
		number, rights := make([]byte, 4), make([]byte, 64)
		n, rightsBytes, _, _, err := c.ReadMsgUnix(number, rights)
		if err != nil || n == 0 {
			return got
		}
		messages, _ := unix.ParseSocketControlMessage(rights[:rightsBytes])
		for i := range messages {
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) > 0 {
				got[int(binary.LittleEndian.Uint32(number))] = fds[0]
			}
		}
	}
}

// sent is disabled by descriptors that the process sent itself, as where none can be copied.
func (t *trial) sent() {
	path := filepath.Join(t.scratch, "socket")
	listener := must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))
	defer listener.Close()
	got := make(chan map[int]int, 1)
	go func() { got <- received(listener) }()
	w := t.start("ms=2", "send="+path)
	select {
	case w.copies = <-got:
	case <-time.After(10 * time.Second):
		panic(fmt.Errorf("the process sent no descriptor"))
	}
	letGo(w)
	before := w.rate(0.5)
	off := w.off(true)
	whileOff := w.rate(0.5)
	on := w.off(false)
	t.row("sent by a socket", fmt.Sprintf("%d descriptors, status of off %#x, on %#x", len(w.copies), off, on),
		fmt.Sprintf("kernels a second %.0f, off %.0f, on %.0f", before, whileOff, w.rate(0.5)))
	t.stop(w)
}
