// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// manager is systemd, which may have started us (sd_notify(3)).
type manager struct {
	socket   string        // "": it has not
	watchdog time.Duration // of the unit; 0: none
	watches  bool          // it waits for a word within that time
	last     time.Time
}

func managerOf() *manager {
	m := &manager{socket: os.Getenv("NOTIFY_SOCKET")}                                           //nolint:forbidigo // systemd sets it, for root
	if us, err := strconv.ParseUint(os.Getenv("WATCHDOG_USEC"), 10, 32); err == nil && us > 0 { //nolint:forbidigo // the same
		m.watchdog = time.Duration(us) * time.Microsecond
	}
	return m
}

func (m *manager) say(words string) {
	if m.socket == "" {
		return
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // systemd that does not read must not hold us up
	if err != nil {
		return
	}
	defer unix.Close(socket)
	_ = unix.Sendto(socket, []byte(words), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: m.socket})
}

// next is when systemd has to hear from us, also where a worker says nothing: that is ours to end.
func (m *manager) next() <-chan time.Time {
	if !m.watches || m.watchdog == 0 {
		return nil
	}
	return time.After(m.watchdog / 4)
}

// alive is called with each word of the worker, and when next comes. While no slice is at work systemd waits for nothing, and nothing is done.
func (m *manager) alive(now time.Time, idle bool) {
	switch {
	case m.watchdog == 0:
	case idle && m.watches:
		m.watches = false
		m.say("WATCHDOG_USEC=0")
	case idle:
	case !m.watches:
		m.watches, m.last = true, now
		m.say(fmt.Sprintf("WATCHDOG_USEC=%d\nWATCHDOG=1", m.watchdog.Microseconds()))
	case now.Sub(m.last) >= m.watchdog/4:
		m.last = now
		m.say("WATCHDOG=1")
	}
}

// ready says so, and that nothing is to be waited for yet.
func (m *manager) ready() {
	m.watches = true
	m.say("READY=1")
	m.alive(time.Now(), true)
}
