// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/keeper"
)

// notified is systemd's socket, and its next message.
func notified(t *testing.T) (path string, said func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return path, func() string {
		t.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(longest))
		text := make([]byte, 1000)
		n, err := socket.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(text[:n])
	}
}

// A worker that hangs is its supervisor's to end, and between two workers nobody is there: systemd must end neither.
func TestSystemdEndsNoSupervisorForItsWorker(t *testing.T) {
	path, said := notified(t)
	m := &manager{socket: path, watchdog: 40 * time.Millisecond}
	w := &worker{said: make(chan keeper.Doing, 1)}
	w.said <- keeper.Working
	ended := make(chan struct{})
	go func() { defer close(ended); w.watch(nil, m, &chores{}) }()
	for _, want := range []string{"WATCHDOG_USEC=40000\nWATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if got := said(); got != want {
			t.Errorf("systemd hears %q, not %q", got, want)
		}
	}
	close(w.said)
	<-ended
	last := said()
	for ; last == "WATCHDOG=1"; last = said() {
	}
	if last != "WATCHDOG_USEC=0" {
		t.Errorf("without a worker systemd hears %q", last)
	}
}
